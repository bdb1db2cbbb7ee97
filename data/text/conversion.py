"""Converts the files of a text to token ids on the disk: once, on all cores, and from where it
stopped if killed.

The folder of a conversion holds `training.ids` and `validation.ids`, arrays of the smallest integer
type; `documents`, the ends of the training documents in ids and in characters, int64;
`progress.json`, how much of the others is valid; and, when all is done, `done.json`, with the type
and how often each id occurs.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BufferedWriter
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from data.text.parallel import parallel_map
from data.text.sources import Block, Reading, Source, read_blocks
from data.vocabulary import Vocabulary
from runs.files import flush, write_json
from runs.reading import read_bytes

COUNTED_AT_ONCE = 1_000_000  # tokens
SECONDS_BETWEEN_NOTES = 1.0  # of the progress
TRAINING = "training.ids"
VALIDATION = "validation.ids"
DOCUMENTS = "documents"
FILES = (TRAINING, VALIDATION, DOCUMENTS)


def convert(
    sources: Sequence[Source],
    reading: Reading,
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
    n_ids = vocabulary.n_ids_in_text
    dtype = np.min_scalar_type(n_ids - 1)  # the smallest that holds all ids
    with _output(folder) as (files, n_done, note):
        parts = parts_of(sources, reading, n_training)
        n_chars = 0  # of the training text
        for part, block in islice(parts, n_done):
            if part == TRAINING:
                n_chars += len(block.text)
            n_chars_done(len(block.text))
        noted = time.monotonic()
        for part, block, ids, ends in parallel_map(
            partial(_encoded, vocabulary, dtype), parts
        ):
            if part == TRAINING:
                n_ids_before = files[TRAINING].tell() // dtype.itemsize
                files[DOCUMENTS].write(np.add(ends, [n_ids_before, n_chars]).data)
                n_chars += len(block.text)
            files[part].write(ids.data)
            n_done += 1
            n_chars_done(len(block.text))
            if time.monotonic() > noted + SECONDS_BETWEEN_NOTES:
                note(n_done)
                noted = time.monotonic()
        note(n_done)

    counts = {
        Path(part).stem: _counts(folder / part, dtype, n_ids)
        for part in (TRAINING, VALIDATION)
    }
    write_json(folder / "done.json", {"dtype": dtype.name, "counts": counts})


@contextmanager
def _output(
    folder: Path,
) -> Iterator[tuple[dict[str, BufferedWriter], int, Callable[[int], None]]]:
    """Opens the files of a conversion to append to them, cut to their sizes in progress.json.

    Yields them by name, the number of blocks that they hold, and a function to note another number
    and the sizes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "progress.json"
    progress = dict.fromkeys(("blocks", *FILES), 0)
    with suppress(OSError, ValueError):  # nothing is converted yet
        progress = json.loads(read_bytes(path))

    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "ab")) for name in FILES}
        if any(
            progress[name] > file.tell() for name, file in files.items()
        ):  # a damaged folder
            progress = dict.fromkeys(progress, 0)
        for name, file in files.items():
            file.seek(file.truncate(progress[name]))

        def note(n_blocks: int) -> None:
            noted = {"blocks": n_blocks}
            for name, file in files.items():
                file.flush()
                flush(folder / name)
                noted[name] = file.tell()
            write_json(path, noted)

        yield files, progress["blocks"], note


def _counts(path: Path, dtype: np.dtype, n_ids: int) -> list[int]:
    """How often each id occurs in a file."""

    def counted(offset: int) -> np.ndarray:
        ids = np.fromfile(path, dtype, COUNTED_AT_ONCE, offset=offset)
        return np.bincount(ids, minlength=n_ids)

    offsets = range(0, path.stat().st_size, COUNTED_AT_ONCE * dtype.itemsize)
    return sum(parallel_map(counted, offsets), np.zeros(n_ids, dtype=np.int64)).tolist()


def parts_of(
    sources: Sequence[Source], reading: Reading, n_training: Sequence[int]
) -> Iterator[tuple[str, Block]]:
    """Each block of the files with the part that it belongs to; a block at the border is cut."""
    for source, n in zip(sources, n_training, strict=True):
        yield from _parts_of_file(source, reading, n)


def _parts_of_file(
    source: Source, reading: Reading, left: int
) -> Iterator[tuple[str, Block]]:
    """`left` is the number of characters for training in the rest of the file."""
    for block in read_blocks(source, reading):
        source.check_unchanged()  # so that only text of the listed file is noted as converted
        n = len(block.text)
        if left:
            ends = [end for end in block.ends if end < left]
            if left <= n:
                ends.append(left)
            yield TRAINING, Block(block.text[:left], ends)
        if not left or left < n:
            ends = [end - left for end in block.ends if end > left]
            yield VALIDATION, Block(block.text[left:], ends)
        left = max(0, left - n)


def _encoded(
    vocabulary: Vocabulary, dtype: np.dtype, part_and_block: tuple[str, Block]
) -> tuple[str, Block, np.ndarray, np.ndarray]:
    """A block with its token ids, `[n]`, and the number of ids and of characters up to the end of
    each document, `[n_ends, 2]`."""
    part, block = part_and_block
    borders = sorted({0, *block.ends, len(block.text)})
    ids = [np.empty(0, dtype)]  # up to each border
    for begin, end in pairwise(borders):
        ids.append(vocabulary.encode(block.text[begin:end]).numpy().astype(dtype))

    n_ids = np.cumsum([len(each) for each in ids])
    ends = np.stack([n_ids, borders], axis=1)[np.isin(borders, block.ends)]
    return part, block, np.concatenate(ids), ends
