"""Converts the files of a text to token ids on the disk: once, on all cores, and from where it
stopped if killed.

The folder of a conversion holds `training.ids` and `validation.ids`, arrays of the smallest integer
type; `documents`, the ends of the training documents in ids and in characters, int64;
`progress.json`, how much of the others is valid; and, when all is done, `done.json`, with the type
and how often each id occurs.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedWriter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from data.text.parallel import parallel_map
from data.text.sources import Block, Source, read_blocks
from data.vocabulary import Vocabulary
from runs.files import flush, write_json
from runs.reading import read_bytes

COUNTED_AT_ONCE = 1_000_000  # tokens
SECONDS_BETWEEN_NOTES = 1.0  # of the progress
TRAINING, VALIDATION, DOCUMENTS = FILES = "training.ids", "validation.ids", "documents"


def convert(
    sources: Sequence[Source],
    vocabulary: Vocabulary,
    n_training: Sequence[int],
    folder: Path,
    n_chars_done: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the token ids of files into `folder`; continues where an earlier call stopped.

    The first `n_training` characters of each file are for training, the others for validation.
    `n_chars_done` is called with the number of characters that have been converted since its last
    call. Raises CorpusError or OSError.
    """
    dtype = np.min_scalar_type(vocabulary.n_ids_in_text - 1)  # the smallest that holds all ids
    with _output(folder) as (files, n_done, note):
        parts = (
            part
            for source, n in zip(sources, n_training, strict=True)
            for part in _parts(source, n)
        )
        n_chars = 0  # of the training text
        for part, block in islice(parts, n_done):
            n_chars += len(block.text) if part == TRAINING else 0
            n_chars_done(len(block.text))
        written = time.monotonic()
        for part, block, ids, ends in parallel_map(partial(_encoded, vocabulary, dtype), parts):
            if part == TRAINING:
                files[DOCUMENTS].write(
                    (ends + np.array([files[TRAINING].tell() // dtype.itemsize, n_chars])).data
                )
                n_chars += len(block.text)
            files[part].write(ids.data)
            n_done += 1
            n_chars_done(len(block.text))
            if time.monotonic() - written > SECONDS_BETWEEN_NOTES:
                note(n_done)
                written = time.monotonic()
        note(n_done)
    counts = {
        Path(name).stem: _counts(folder / name, dtype, vocabulary.n_ids_in_text)
        for name in FILES[:2]
    }
    write_json(folder / "done.json", {"dtype": dtype.name, "counts": counts})


@contextlib.contextmanager
def _output(folder: Path) -> Iterator[tuple[dict[str, BufferedWriter], int, Callable[[int], None]]]:
    """Opens the files of a conversion to append to them, cut to their sizes in progress.json.
    Yields them by name, the number of blocks that they hold, and a function to note another number
    and the sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    progress = dict.fromkeys(("blocks", *FILES), 0)
    with contextlib.suppress(OSError, ValueError):  # nothing is converted yet
        progress = json.loads(read_bytes(folder / "progress.json"))
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "ab")) for name in FILES}
        if any(progress[name] > file.tell() for name, file in files.items()):  # a damaged folder
            progress = dict.fromkeys(progress, 0)
        for name, file in files.items():
            file.seek(file.truncate(progress[name]))

        def note(n_blocks: int) -> None:
            for file in files.values():
                file.flush()
                flush(Path(file.name))
            write_json(
                folder / "progress.json",
                {"blocks": n_blocks} | {name: f.tell() for name, f in files.items()},
            )

        yield files, progress["blocks"], note


def _counts(path: Path, dtype: np.dtype, n_ids: int) -> list[int]:
    """How often each id occurs in a file."""
    begins = range(0, path.stat().st_size, COUNTED_AT_ONCE * dtype.itemsize)

    def counted(begin: int) -> np.ndarray:
        return np.bincount(np.fromfile(path, dtype, COUNTED_AT_ONCE, offset=begin), minlength=n_ids)

    return sum(parallel_map(counted, begins), np.zeros(n_ids, dtype=np.int64)).tolist()


def _parts(source: Source, n_training: int) -> Iterator[tuple[str, Block]]:
    """Each block of a file with the part that it belongs to; the block at the border is cut."""
    left = n_training
    for block in read_blocks(source):
        source.check_unchanged()  # so that only text of the listed file is noted as converted
        if left > len(block.text):
            yield TRAINING, block
        elif left:
            yield (
                TRAINING,
                Block(block.text[:left], [*(end for end in block.ends if end < left), left]),
            )
            if left < len(block.text):
                yield (
                    VALIDATION,
                    Block(block.text[left:], [end - left for end in block.ends if end > left]),
                )
        else:
            yield VALIDATION, block
        left = max(0, left - len(block.text))


def _encoded(
    vocabulary: Vocabulary, dtype: np.dtype, part_and_block: tuple[str, Block]
) -> tuple[str, Block, np.ndarray, np.ndarray]:
    """A block with its token ids, `[n]`, and the number of ids and of characters up to the end of
    each document."""
    part, block = part_and_block
    borders = sorted({0, *block.ends, len(block.text)})
    documents = [
        vocabulary.encode(block.text[begin:end]).numpy().astype(dtype)
        for begin, end in pairwise(borders)
    ]
    n_ids = np.cumsum([0, *map(len, documents)])
    chars = np.unique(block.ends).astype(np.int64)
    ends = np.stack([n_ids[np.searchsorted(borders, chars)], chars], axis=1)
    ids = np.concatenate(documents) if documents else np.empty(0, dtype)
    return part, block, ids, ends
