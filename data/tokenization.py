"""Converts the files of a text to token ids on the disk: once, on all cores, and from where it stopped if killed.

The folder of a conversion holds `training.ids` and `validation.ids`, arrays of the smallest integer type; `documents`,
the ends of the training documents, int64; `journal.jsonl`, how much of the others is valid; and, when all is done,
`done.json`, with the type and how often each id occurs.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from data.in_order import in_order
from data.sources import Block, Source, read_blocks
from data.vocabulary import Vocabulary
from runs.files import append_line, flush, write_json

COUNTED_AT_ONCE = 1_000_000  # tokens
SECONDS_BETWEEN_ENTRIES = 1.0  # of the journal
TRAINING, VALIDATION = "training", "validation"


class Tokens(NamedTuple):
    """A block as token ids."""

    part: str
    n_bytes: int
    ids: np.ndarray  # [n]
    ends: np.ndarray  # the number of ids up to the end of each document


class Progress(NamedTuple):
    """How much of a conversion is on the disk."""

    blocks: int = 0
    training: int = 0  # tokens
    validation: int = 0  # tokens
    documents: int = 0


def dtype_for(n_ids: int) -> np.dtype:
    """The smallest integer type that holds the ids below `n_ids`."""
    return np.min_scalar_type(n_ids - 1)


def convert(
    sources: Sequence[Source],
    vocabulary: Vocabulary,
    n_training_chars: int,
    folder: Path,
    n_bytes_done: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the token ids of files into `folder`; continues where an earlier call stopped.

    The first `n_training_chars` characters are for training, the others for validation. `n_bytes_done` is called with
    the number of bytes of text that have been converted since its last call. Raises CorpusError or OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / "journal.jsonl"
    dtype = dtype_for(vocabulary.n_ids_in_text)
    paths = {name: folder / name for name in (f"{TRAINING}.ids", f"{VALIDATION}.ids", "documents")}
    done = _last_entry(journal)
    sizes = done.training * dtype.itemsize, done.validation * dtype.itemsize, done.documents * 8
    if any(size > _size(path) for path, size in zip(paths.values(), sizes, strict=True)):  # a damaged folder
        done, sizes = Progress(), (0, 0, 0)
    files = {path.stem: _opened(path, size) for path, size in zip(paths.values(), sizes, strict=True)}
    written, n_skipped = time.monotonic(), done.blocks

    reading = sources[0]

    def blocks() -> Iterator[Block]:
        nonlocal reading
        for reading in sources:
            yield from read_blocks(reading)

    def remaining() -> Iterator[tuple[str, Block]]:
        for number, (part, block) in enumerate(_parts(blocks(), n_training_chars)):
            if number < n_skipped:
                n_bytes_done(len(block.text))
            else:
                yield part, block

    try:
        for tokens in in_order(lambda block: _encoded(block, vocabulary, dtype), remaining()):
            files[tokens.part].write(tokens.ids.data)
            if tokens.part == TRAINING:
                files["documents"].write((done.training + tokens.ends).data)
            length = {tokens.part: getattr(done, tokens.part) + len(tokens.ids)}
            n_documents = done.documents + (len(tokens.ends) if tokens.part == TRAINING else 0)
            done = done._replace(blocks=done.blocks + 1, documents=n_documents, **length)
            n_bytes_done(tokens.n_bytes)
            if time.monotonic() - written > SECONDS_BETWEEN_ENTRIES:
                reading.check_unchanged()
                _write_entry(journal, done, files)
                written = time.monotonic()
        _write_entry(journal, done, files)
    finally:
        for file in files.values():
            file.close()
    counts = {part: _counts(folder / f"{part}.ids", dtype, vocabulary.n_ids_in_text) for part in (TRAINING, VALIDATION)}
    write_json(folder / "done.json", {"dtype": dtype.name, "counts": counts})


def _counts(path: Path, dtype: np.dtype, n_ids: int) -> list[int]:
    """How often each id occurs in a file."""
    begins = range(0, path.stat().st_size // dtype.itemsize, COUNTED_AT_ONCE)

    def counted(begin: int) -> np.ndarray:
        ids = np.fromfile(path, dtype, COUNTED_AT_ONCE, offset=begin * dtype.itemsize)
        return np.bincount(ids, minlength=n_ids)

    return sum(in_order(counted, begins), np.zeros(n_ids, dtype=np.int64)).tolist()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _opened(path: Path, size: int) -> BinaryIO:
    """A file to append to, cut to the size that the journal knows."""
    file = open(path, "ab")  # noqa: SIM115
    file.truncate(size)
    file.seek(size)
    return file


def _last_entry(journal: Path) -> Progress:
    try:
        lines = journal.read_text().splitlines()
    except OSError:
        return Progress()
    for line in reversed(lines):
        try:
            return Progress(**json.loads(line))
        except (ValueError, TypeError):  # an incomplete line
            continue
    return Progress()


def _write_entry(journal: Path, done: Progress, files: dict[str, BinaryIO]) -> None:
    for file in files.values():
        file.flush()
        flush(Path(file.name))
    append_line(journal, json.dumps(done._asdict()))


def _parts(blocks: Iterable[Block], n_training_chars: int) -> Iterator[tuple[str, Block]]:
    """Each block with the part that it belongs to; the block at the border is cut."""
    left = n_training_chars
    for block in blocks:
        n_chars = n_chars_in(block.text)
        if left > n_chars:
            yield TRAINING, block
        elif left > 0:
            end = len(block.text.decode()[:left].encode())
            ends = [*(e for e in block.ends if e < end), end]
            yield TRAINING, Block(block.text[:end], ends)
            if end < len(block.text):
                yield VALIDATION, Block(block.text[end:], [])
        else:
            yield VALIDATION, block
        left -= n_chars


def n_chars_in(text: bytes) -> int:
    """The number of characters of a text in UTF-8: its bytes that do not continue a character."""
    if text.isascii():
        return len(text)
    return int(np.count_nonzero((np.frombuffer(text, dtype=np.uint8) & 0xC0) != 0x80))


def _encoded(part_and_block: tuple[str, Block], vocabulary: Vocabulary, dtype: np.dtype) -> Tokens:
    part, block = part_and_block
    borders = sorted({0, *block.ends, len(block.text)})
    documents = [
        vocabulary.encode(block.text[begin:end].decode()).numpy().astype(dtype) for begin, end in pairwise(borders)
    ]
    n_ids = np.cumsum([0, *map(len, documents)])
    ends = n_ids[np.searchsorted(borders, np.unique(block.ends)).astype(np.int64)]
    ids = np.concatenate(documents) if documents else np.empty(0, dtype)
    return Tokens(part, len(block.text), ids, ends.astype(np.int64))
