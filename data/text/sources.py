"""The files of a text: one file or a folder of files, plain, compressed by gzip or Zstandard, or
Parquet.

They are read in blocks of about a million characters, in the same order and with the same borders
each time.
"""

import codecs
import contextlib
import gzip
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from runs.errors import InputError

BLOCK = 1_000_000  # bytes of a file, or characters of a Parquet document, that are read at once
COLUMN = "text"  # of Parquet files
ROWS = 16  # of Parquet files that are decoded at once
DOCUMENT = (
    200  # characters; shorter rows, such as headings, may be equal without being copies
)
FORMATS = {  # how compressed files begin
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
}


class CorpusError(InputError):
    """The text is missing or unusable; the message is one line for the user."""


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a string: it has no lone surrogate."""
    return text == text.encode("utf-8", "replace").decode()


@dataclass(frozen=True)
class Reading:
    """How files are read: the keys `data.column`, `data.documents` and `data.raw`."""

    column: str = ""  # of tables; dotted for nested fields; empty: `text`
    documents: str = "auto"
    raw: bool = False  # JSON, CSV, HTML and XML as they are


@dataclass(frozen=True)
class Source:
    """A file as it was when the text was listed."""

    path: Path
    size: int  # bytes
    modified: int  # nanoseconds

    def check_unchanged(self) -> None:
        """Raise CorpusError if the file has changed since the text was listed."""
        with contextlib.suppress(OSError):
            now = self.path.stat()
            if (now.st_size, now.st_mtime_ns) == (self.size, self.modified):
                return
        raise CorpusError(
            f"data.corpus: {str(self.path)!r} has changed while it was read: wait until it is whole"
        )


class Listing(NamedTuple):
    """The files of a text, in order."""

    sources: list[Source]
    left_out: dict[Path, str]  # the other files of a folder, and why they are left out


class Block(NamedTuple):
    """Part of a file."""

    text: str
    ends: list[int]  # the offsets in `text` at which documents end
    # in the last block of a file: the rows that were left out, copies of earlier ones
    n_copies: int = 0


def is_plain(path: Path) -> bool:
    """Whether the name of a file says that its bytes are the text."""
    return path.suffix.lower() not in (".gz", ".zst", ".parquet")


def list_sources(path: Path, reading: Reading) -> Listing:
    """The files of a text. Those of a folder and its subfolders are in the order of their names,
    without names that begin with a dot. Raises CorpusError, naming the file that cannot be used."""
    sources = []
    try:
        for file in _files(path, ()):
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise CorpusError(
                    f"data.corpus: {str(file)!r} is not a regular file: remove it"
                )
            if not status.st_size:
                raise CorpusError(f"data.corpus: {str(file)!r} is empty: remove it")
            sources.append(Source(file, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise CorpusError(
            f"data.corpus: cannot read {error.filename or path!r} ({error.strerror or error})"
        ) from error

    if not sources:
        raise CorpusError(f"data.corpus: the folder {str(path)!r} has no files")

    return Listing(sources, {})


def _files(path: Path, parents: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return

    status = path.stat()
    folder = (status.st_dev, status.st_ino)
    if folder in parents:
        raise CorpusError(
            f"data.corpus: the link {str(path)!r} leads back to a folder above it: remove it"
        )

    for name in sorted(os.listdir(path)):
        if not name.startswith("."):
            yield from _files(path / name, (*parents, folder))


def read_blocks(source: Source, reading: Reading) -> Iterator[Block]:
    """The text of a file. Raises CorpusError if it cannot be read, or if it changes in the
    meantime."""
    try:
        if source.path.suffix.lower() == ".parquet":
            yield from _parquet_blocks(source.path)
        else:
            with _opened(source.path) as file:
                yield from _document(
                    _decoded(file, f"data.corpus: {str(source.path)!r}")
                )
    except CorpusError:
        raise
    except Exception as error:  # each decompressor has errors of its own
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CorpusError(
            f"data.corpus: cannot read {str(source.path)!r} ({reason})"
        ) from error
    source.check_unchanged()


def _opened(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if path.suffix.lower() == ".zst":
        return _pyarrow(path).input_stream(str(path), compression="zstd")
    return open(path, "rb")


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    """The text of a file, in pieces of BLOCK bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    begin = b""
    offset = 0
    while True:
        content = file.read(BLOCK)
        begin = begin or content[:8]
        # the first bytes of a character that goes on in `content`
        n_pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(content, final=not content)
        except UnicodeDecodeError as error:
            raise not_text(name, begin, offset - n_pending + error.start) from error
        if not content:
            return
        offset += len(content)


def not_text(name: str, begin: bytes, offset: int) -> CorpusError:
    """The error for a file that begins with the bytes `begin` and is not UTF-8 at `offset`."""
    for first, kind in FORMATS.items():
        if begin.startswith(first):
            return CorpusError(
                f"{name} is compressed ({kind}): unpack it first, or use plain text in .gz or .zst"
            )
    return CorpusError(f"{name} is not UTF-8 text (byte {offset}): convert it first")


def _document(pieces: Iterable[str]) -> Iterator[Block]:
    """The blocks of a document: each but the last ends before a line that does not begin with a
    space, if it has one.

    A tokenizer then gives the same tokens for the blocks as for the whole.
    """
    text = ""
    for piece in pieces:
        if text and piece:
            newline = text.rfind("\n", 0, -1)
            while newline >= 0 and text[newline + 1].isspace():
                newline = text.rfind("\n", 0, newline)
            end = newline + 1 or len(text)
            yield Block(text[:end], [])
            text = text[end:]
        text += piece

    yield Block(text, [len(text)])


def _parquet_blocks(path: Path) -> Iterator[Block]:
    """Each row is a document. Leaves out copies of earlier rows, except of short ones."""
    documents = []
    size = 0
    hashes = set[int]()
    n_copies = 0
    for document in _rows(path):
        if len(document) >= DOCUMENT:
            if hash(document) in hashes:
                n_copies += 1
                continue
            hashes.add(hash(document))
        if size and size + len(document) > BLOCK:
            yield _joined(documents)
            documents = []
            size = 0
        if len(document) > BLOCK:
            yield from _document(
                document[i : i + BLOCK] for i in range(0, len(document), BLOCK)
            )
        else:
            documents.append(document)
            size += len(document)

    yield _joined(documents, n_copies)


def _rows(path: Path) -> Iterator[str]:
    """The column `text` of a Parquet file."""
    # or it would read a whole row group
    file = _pyarrow(path).parquet.ParquetFile(path, buffer_size=BLOCK)
    columns = {field.name: str(field.type) for field in file.schema_arrow}
    if columns.get(COLUMN) not in ("string", "large_string"):
        others = ", ".join(
            f"{name!r} ({kind})" for name, kind in [*columns.items()][:10]
        )
        raise CorpusError(
            f"data.corpus: {str(path)!r} has no column {COLUMN!r} of strings (it has {others})"
        )

    for batch in file.iter_batches(batch_size=ROWS, columns=[COLUMN]):
        for row in batch.column(0):
            yield row.as_py() or ""


def _joined(documents: list[str], n_copies: int = 0) -> Block:
    return Block("".join(documents), list(accumulate(map(len, documents))), n_copies)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(
            f"data.corpus: {str(path)!r} needs pyarrow: pip install -r requirements-text.txt"
        ) from error
    return pyarrow
