"""The files of a text: one file or a folder of files, plain, compressed by gzip or Zstandard, or Parquet.

They are read in blocks of about a megabyte, in the same order and with the same borders each time.
"""

import gzip
import io
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

BLOCK = 1_000_000  # bytes
COLUMN = "text"  # of Parquet files
ROWS = 16  # of Parquet files that are decoded at once
COMPRESSED = (".gz", ".zst")
# A line that does not begin with a space: a tokenizer gives the same tokens for both parts as for the whole. The bytes
# left out begin characters of which some are spaces.
LINE_BEGIN = re.compile(rb"\n(?=[!-~\xc3-\xe0\xe4-\xf4])")


class CorpusError(ValueError):
    """The text is missing or unusable; the message is one line for the user."""


@dataclass(frozen=True)
class Source:
    """A file as it was when the text was listed."""

    path: Path
    size: int  # bytes
    modified: int  # nanoseconds

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of the file are the text."""
        return is_plain(self.path)

    def check_unchanged(self) -> None:
        """Raise CorpusError if the file has changed since the text was listed."""
        try:
            now = self.path.stat()
            is_same = (now.st_size, now.st_mtime_ns) == (self.size, self.modified)
        except OSError:
            is_same = False
        if not is_same:
            raise CorpusError(f"data.corpus: {str(self.path)!r} has changed while it was read: wait until it is whole")


class Block(NamedTuple):
    """Part of a file."""

    text: bytes  # UTF-8
    ends: list[int]  # the offsets in `text` at which documents end


def is_plain(path: Path) -> bool:
    """Whether the name of a file says that its bytes are the text."""
    return path.suffix.lower() not in (*COMPRESSED, ".parquet")


def list_sources(path: Path) -> list[Source]:
    """The files of a text, in the order of their names. Raises CorpusError, naming the file that cannot be used.

    A folder is searched with its subfolders; names that begin with a dot are left out.
    """
    try:
        sources = [_source(file) for file in _files(path, ())]
    except OSError as error:
        raise CorpusError(f"data.corpus: cannot read {error.filename or path!r} ({error.strerror or error})") from error
    if not sources:
        raise CorpusError(f"data.corpus: the folder {str(path)!r} has no files")
    return sources


def _files(path: Path, parents: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    status = path.stat()
    folder = (status.st_dev, status.st_ino)
    if folder in parents:
        raise CorpusError(f"data.corpus: the link {str(path)!r} leads back to a folder above it: remove it")
    for name in sorted(os.listdir(path)):
        if not name.startswith("."):
            yield from _files(path / name, (*parents, folder))


def _source(path: Path) -> Source:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(f"data.corpus: {str(path)!r} is not a regular file: remove it")
    if not status.st_size:
        raise CorpusError(f"data.corpus: {str(path)!r} is empty: remove it")
    return Source(path, status.st_size, status.st_mtime_ns)


def read_blocks(source: Source) -> Iterator[Block]:
    """The text of a file. Raises CorpusError if it cannot be read, or if it changes in the meantime."""
    try:
        if source.path.suffix.lower() == ".parquet":
            yield from _parquet_blocks(source.path)
        else:
            with _opened(source.path) as file:
                yield from _file_blocks(file)
    except CorpusError:
        raise
    except Exception as error:  # each decompressor has errors of its own
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CorpusError(f"data.corpus: cannot read {str(source.path)!r} ({reason})") from error
    source.check_unchanged()


def _opened(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if path.suffix.lower() == ".zst":
        return _pyarrow(path).input_stream(str(path), compression="zstd")
    return open(path, "rb")


def _file_blocks(file: BinaryIO) -> Iterator[Block]:
    text = file.read(BLOCK)
    while following := file.read(BLOCK):
        end = _end_of_block(text)
        yield Block(text[:end], [])
        text = text[end:] + following
    yield Block(text, [len(text)])


def _end_of_block(text: bytes) -> int:
    """The offset at which to cut a text: the beginning of a line if possible, and never inside a character."""
    newline = len(text)
    while (newline := text.rfind(b"\n", 0, newline)) >= 0:
        if LINE_BEGIN.match(text, newline):
            return newline + 1
    beginnings = (end for end in range(len(text) - 1, max(0, len(text) - 4), -1) if text[end] & 0xC0 != 0x80)
    return next(beginnings, len(text))


def _parquet_blocks(path: Path) -> Iterator[Block]:
    """Each row of the column `text` is a document."""
    file = _pyarrow(path).parquet.ParquetFile(path, buffer_size=BLOCK)  # or it would read a whole row group
    columns = {field.name: str(field.type) for field in file.schema_arrow}
    if columns.get(COLUMN) not in ("string", "large_string"):
        found = ", ".join(f"{name!r} ({kind})" for name, kind in [*columns.items()][:10])
        raise CorpusError(f"data.corpus: {str(path)!r} has no column {COLUMN!r} of strings (it has {found})")
    documents: list[bytes] = []
    size = 0
    for batch in file.iter_batches(batch_size=ROWS, columns=[COLUMN]):
        for row in batch.column(0):
            document = (row.as_py() or "").encode()
            if size and size + len(document) > BLOCK:
                yield _joined(documents)
                documents, size = [], 0
            if len(document) > BLOCK:
                yield from _file_blocks(io.BytesIO(document))
            else:
                documents.append(document)
                size += len(document)
    yield _joined(documents)


def _joined(documents: list[bytes]) -> Block:
    ends, end = [], 0
    for document in documents:
        end += len(document)
        ends.append(end)
    return Block(b"".join(documents), ends)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(f"data.corpus: {str(path)!r} needs pyarrow: pip install -r requirements-text.txt") from error
    return pyarrow
