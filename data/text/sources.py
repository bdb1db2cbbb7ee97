"""The files of a text, one file or a folder of files, and the documents in them.

Files are plain text, JSON, CSV, TSV, Parquet or Arrow; all but the last two may be compressed by
gzip or Zstandard. They are read in blocks of about a million characters, in the same order and with
the same borders each time.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, filterfalse
from pathlib import Path
from typing import NamedTuple

from data.text.files import (
    CSV,
    JSON,
    MARKUP,
    SAMPLE,
    TEXT,
    TSV,
    CorpusError,
    UnusableFileError,
    decoded,
    kind_of,
    parts_of,
)
from data.text.tables import TABLES, UnknownFieldError, documents_of
from runs.errors import first_line
from runs.reading import read_bytes

# bytes of a file, or characters of rows, that are read at once; more do not fit into the caches
BLOCK = 64_000
BETWEEN_PARAGRAPHS = re.compile(r"\n\s*\n")


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
    kind: str  # of `data.text.files`
    is_in_folder: bool  # and left out if it is no text

    def check_unchanged(self) -> None:
        """Raise CorpusError if the file has changed since the text was listed."""
        with contextlib.suppress(OSError):
            now = self.path.stat()
            if (now.st_size, now.st_mtime_ns) == (self.size, self.modified):
                return
        raise CorpusError(
            f"{str(self.path)!r} has changed while it was read: wait until it is whole"
        )


class Listing(NamedTuple):
    """The files of a text, in order."""

    path: Path  # of the text
    sources: list[Source]
    left_out: dict[Path, str]  # the other files of a folder, and why they are left out

    @property
    def n_bytes(self) -> int:
        return sum(source.size for source in self.sources)

    def is_one_text(self, reading: Reading) -> bool:
        """Whether it is a file without documents."""
        (first, *_) = self.sources
        is_plain = first.kind == TEXT and not first.is_in_folder
        return is_plain and reading.documents in ("auto", "files")


class Block(NamedTuple):
    """Part of a file: documents, or a part of a long one."""

    texts: list[str]  # none is empty
    is_whole: bool = True  # whether the last text ends its document


def list_sources(path: Path, reading: Reading) -> Listing:
    """The files of a text. Those of a folder and its subfolders are in the order of their names,
    without names that begin with a dot.

    A folder's files that cannot be used are left out. So are texts that lie beside tables, or above
    them, such as the README of a data set. Raises CorpusError, naming the file, if no file can be
    used, if a file is damaged, or if no table has the field that is named, or that most of the text
    needs.
    """
    sources = []
    left_out = {}
    lacking = []  # tables without the field
    n_bytes_lacking = 0
    for file in _files(path, ()):
        try:
            sources.append(_source(file, reading, file != path))
        except UnusableFileError as error:
            if file == path:
                raise CorpusError(f"{str(file)!r} {error}") from error
            left_out[file] = str(error)
            if isinstance(error, UnknownFieldError):
                lacking.append(file)
                n_bytes_lacking += file.stat().st_size

    tables = [source.path for source in sources if source.kind in TABLES]
    folders = set[Path]()
    for table in tables:
        folders.update(table.parents)
    for source in list(sources):
        if source.kind == TEXT and source.path.parent in folders:
            sources.remove(source)
            left_out[source.path] = "is beside tables"

    listing = Listing(path, sources, left_out)
    if lacking and not tables and (reading.column or n_bytes_lacking > listing.n_bytes):
        file = lacking[0]
        raise CorpusError(f"{str(file)!r} {left_out[file]}")
    if not sources:
        file, reason = next(iter(left_out.items()), (path, "has no files"))
        others = f"; {len(left_out):,} files are left out" if len(left_out) > 1 else ""
        raise CorpusError(f"no text in {str(path)!r}: {file.name!r} {reason}{others}")
    return listing


def _source(path: Path, reading: Reading, is_in_folder: bool) -> Source:
    """Raises UnusableFileError or CorpusError."""
    with _naming(path):
        if is_in_folder and not path.exists():
            raise UnusableFileError("is a link to nothing")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFileError("is not a regular file")
        if not status.st_size:
            raise UnusableFileError("is empty")
        kind = kind_of(path)
        if reading.raw and kind in (JSON, CSV, TSV, MARKUP):
            kind = TEXT
        if kind == MARKUP:
            raise UnusableFileError(
                f"is {MARKUP}: extract its text first, or set data.raw=true"
            )
        if kind in TABLES:  # the field exists
            next(documents_of(path, kind, reading.column, SAMPLE), None)
        return Source(path, status.st_size, status.st_mtime_ns, kind, is_in_folder)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns errors of the system into CorpusErrors, and those of damaged files into
    UnusableFileErrors."""
    try:
        yield
    except (CorpusError, UnusableFileError):
        raise
    except Exception as error:  # each decompressor has errors of its own
        reason = getattr(error, "strerror", None)
        if reason:
            raise CorpusError(f"cannot read {str(path)!r} ({reason})") from error
        raise UnusableFileError(f"cannot be read ({first_line(error)})") from error


def _files(path: Path, parents: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    with _naming(path):
        if not path.is_dir():
            yield path
            return
        status = path.stat()
        names = sorted(os.listdir(path))

    folder = (status.st_dev, status.st_ino)
    if folder in parents:
        raise CorpusError(
            f"the link {str(path)!r} leads back to a folder above it: remove it"
        )
    if "state.json" in names:
        names = _names_of_data_set(path / "state.json") or names
    for name in names:
        if not name.startswith("."):
            yield from _files(path / name, (*parents, folder))


def _names_of_data_set(state: Path) -> list[str]:
    """The files of a folder that `datasets` has saved; others in it are copies of their rows."""
    try:
        files = json.loads(read_bytes(state))["_data_files"]
        return [file["filename"] for file in files]
    except (OSError, ValueError, LookupError, TypeError):  # another state.json
        return []


def read_blocks(source: Source, reading: Reading) -> Iterator[Block]:
    """The documents of a file. Those with whitespace only are left out, and long ones go on in the
    next block.

    Raises UnusableFileError before the first one if the file is to be left out, and CorpusError if
    it cannot be read, or if it changes in the meantime."""
    if source.kind == TEXT and source.is_in_folder:
        with _naming(source.path):
            for _ in decoded(source.path, BLOCK):
                pass
    try:
        with _naming(source.path):
            yield from _blocks(source, reading)
    except UnusableFileError as error:
        raise CorpusError(f"{str(source.path)!r} {error}") from error
    source.check_unchanged()


def _blocks(source: Source, reading: Reading) -> Iterator[Block]:
    is_text = source.kind == TEXT
    if is_text and reading.documents == "rows":
        raise UnusableFileError("has no rows: set data.documents=lines or files")

    split = SPLITS.get(reading.documents)
    if is_text:
        pieces = decoded(source.path, BLOCK)
        return blocks_of(parts_of(pieces, split)) if split else _document(pieces)

    rows = documents_of(source.path, source.kind, reading.column, BLOCK)
    if reading.documents == "files":
        return _document("\n".join(some) + "\n" for some in rows if some)
    if split:
        texts = chain.from_iterable(rows)
        return blocks_of(chain.from_iterable(parts_of([text], split) for text in texts))
    return blocks_of(rows)


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _paragraphs(text: str) -> list[str]:
    return BETWEEN_PARAGRAPHS.split(text.replace("\r\n", "\n").lstrip("\n"))


SPLITS = {"lines": _lines, "paragraphs": _paragraphs}


def blocks_of(batches: Iterable[list[str]]) -> Iterator[Block]:
    """The blocks of documents, many at once. Those with whitespace only are left out."""
    for documents in batches:
        texts = list(filterfalse(str.isspace, filter(None, documents)))
        if max(map(len, texts), default=0) <= BLOCK:
            yield Block(texts)
            continue
        for text in texts:
            parts = range(0, len(text), BLOCK)
            yield from _document(text[i : i + BLOCK] for i in parts)


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
            yield Block([text[:end]], is_whole=False)
            text = text[end:]
        text += piece

    if text:
        yield Block([text])
