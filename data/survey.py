"""The survey of a text: the characters, documents and hash of each of its files, which must be known before tokens."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.in_order import in_order
from data.sources import Block, CorpusError, Source, read_blocks
from runs.files import append_line, write_atomically


@dataclass(frozen=True)
class Surveyed:
    """What is known of a file."""

    path: str
    size: int  # bytes of the file
    modified: int  # nanoseconds
    sha256: str  # of the file
    n_bytes: int  # of the text in UTF-8
    n_chars: int
    n_documents: int
    counts: dict[str, int]  # of each character


def survey(
    sources: Sequence[Source], cache: Path, n_bytes_read: Callable[[int], None] = lambda n: None
) -> list[Surveyed]:
    """Survey files; those that have not changed since an earlier survey are taken from the file `cache`.

    A file has changed if its size differs, or if its time and its hash differ. `n_bytes_read` is called with the number
    of bytes of the files that have been read since its last call. Raises CorpusError if a file is not UTF-8 text.
    """
    known = {entry.path: entry for entry in _load(cache)}
    found = []
    cache.parent.mkdir(parents=True, exist_ok=True)
    for source in sources:
        entry = _renewed(known.get(str(source.path)), source)
        if entry is None:
            entry = _survey(source, n_bytes_read)
            append_line(cache, json.dumps(asdict(entry)))
        else:
            n_bytes_read(source.size)
        found.append(entry)
    if found != list(known.values()):
        write_atomically(cache, "".join(json.dumps(asdict(entry)) + "\n" for entry in found).encode())
    return found


def _load(cache: Path) -> Iterator[Surveyed]:
    try:
        for line in cache.read_text(encoding="utf-8").splitlines():
            yield Surveyed(**json.loads(line))
    except (OSError, ValueError, TypeError):  # there is none, or its last line is incomplete
        return


def _renewed(entry: Surveyed | None, source: Source) -> Surveyed | None:
    """The entry of a file that is as it was; None otherwise."""
    if entry is None or entry.size != source.size:
        return None
    if entry.modified == source.modified:
        return entry
    if entry.sha256 != _sha256(source.path):
        return None
    return Surveyed(**asdict(entry) | {"modified": source.modified})


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _survey(source: Source, n_bytes_read: Callable[[int], None]) -> Surveyed:
    counts = np.zeros(sys.maxunicode + 1, dtype=np.int64)
    digest = hashlib.sha256()
    n_bytes = n_documents = 0

    def blocks() -> Iterator[Block]:
        for block in read_blocks(source):
            if source.is_plain:
                digest.update(block.text)
                n_bytes_read(len(block.text))
            yield block

    for block, found in in_order(_count, blocks()):
        if isinstance(found, UnicodeDecodeError):
            at = n_bytes + found.start
            raise CorpusError(f"data.corpus: {str(source.path)!r} is not UTF-8 text (byte {at}): convert it first")
        if found[0]:
            raise CorpusError(f"data.corpus: {str(source.path)!r} is a binary file (it has zero bytes): remove it")
        counts[: len(found)] += found
        n_bytes += len(block.text)
        n_documents += len(block.ends)
    if not n_bytes:
        raise CorpusError(f"data.corpus: {str(source.path)!r} has no text: remove it")
    if not source.is_plain:
        n_bytes_read(source.size)
    return Surveyed(
        path=str(source.path),
        size=source.size,
        modified=source.modified,
        sha256=digest.hexdigest() if source.is_plain else _sha256(source.path),
        n_bytes=n_bytes,
        n_chars=int(counts.sum()),
        n_documents=n_documents,
        counts={chr(code): int(counts[code]) for code in np.flatnonzero(counts)},
    )


def _count(block: Block) -> tuple[Block, Any]:
    """How often each code point occurs in a block, or the error in it."""
    if block.text.isascii():
        return block, np.bincount(np.frombuffer(block.text, dtype=np.uint8), minlength=128)
    try:
        codes = np.frombuffer(block.text.decode().encode("utf-32-le"), dtype=np.uint32)
    except UnicodeDecodeError as error:
        return block, error
    return block, np.bincount(codes)
