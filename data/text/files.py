"""Files as they are on the disk: what their names and first bytes say, and their text in pieces."""

import codecs
import csv
import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from runs.errors import InputError

Text = TypeVar("Text", str, bytes)

SAMPLE = 65_536  # bytes at the beginning of a file, which say what it is
ROWS_OF_SAMPLE = 20
BYTE_ORDER_MARK = "\ufeff"
COMPRESSED = {  # how compressed files begin
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf": "7z",
}

TEXT = "text"
JSON = "JSON"
CSV = "CSV"
TSV = "TSV"
MARKUP = "HTML or XML"
PARQUET = "Parquet"
ARROW = "Arrow"
KINDS = {
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".csv": CSV,
    ".tsv": TSV,
    ".htm": MARKUP,
    ".html": MARKUP,
    ".xhtml": MARKUP,
    ".xml": MARKUP,
    ".parquet": PARQUET,
    ".arrow": ARROW,
    ".md": TEXT,  # it often begins with HTML
}
BEGINS = {
    JSON: re.compile(r'\s*(\{\s*"[^"\n]*"\s*:|\[\s*(\{\s*"|"[^"\n]*"\s*[,\]]))'),
    MARKUP: re.compile(
        r"\s*<(\?xml|!doctype|html\b|head\b|body\b"
        r"|[a-z][\w:.-]*(\s+[\w:.-]+\s*=\s*[\"'][^<>]*)+>)",
        re.IGNORECASE,
    ),
}
NAME_OF_FIELD = re.compile(r"[A-Za-z_][\w.-]*")


class CorpusError(InputError):
    """The text is missing or unusable; the message is one line for the user."""


class UnusableFileError(Exception):
    """A file that is no text; the message goes on after its name."""


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() in (".gz", ".zst")


def opened(path: Path) -> Any:
    """Open a file for reading bytes, which are unpacked if its name says .gz or .zst."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(path)
    if suffix == ".zst":
        return pyarrow(path).input_stream(str(path), compression="zstd")
    return open(path, "rb")


def pyarrow(path: Path) -> Any:
    """The package that `path` needs. Raises CorpusError."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(
            f"{str(path)!r} needs pyarrow: pip install -r requirements-text.txt"
        ) from error
    return pyarrow


def decoded(path: Path, size: int) -> Iterator[str]:
    """The text of a file in pieces of `size` bytes, without a byte-order mark.

    Raises UnusableFileError if the file is binary or not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    begin = b""
    offset = 0
    is_last = False
    with opened(path) as file:
        while not is_last:
            content = file.read(size)
            is_last = not content
            begin = begin or content[:8]
            # the first bytes of a character that goes on in `content`
            n_pending = len(decoder.getstate()[0])
            is_binary = b"\0" in content
            try:
                piece = decoder.decode(content, is_last)
            except UnicodeDecodeError as error:
                place = offset - n_pending + error.start
                raise not_text(begin, place, is_binary) from error
            if is_binary:
                raise not_text(begin, offset, is_binary)
            if piece:
                yield piece if offset else piece.removeprefix(BYTE_ORDER_MARK)
            offset += len(content)


def not_text(begin: bytes, offset: int, is_binary: bool) -> UnusableFileError:
    """The error for a file that begins with the bytes `begin` and is not UTF-8 at `offset`."""
    for first, kind in COMPRESSED.items():
        if begin.startswith(first):
            return UnusableFileError(
                f"is compressed ({kind}): unpack it first, or use .gz or .zst"
            )
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return UnusableFileError("is UTF-16 text: convert it to UTF-8 first")
    if is_binary:
        return UnusableFileError("is a binary file (it has zero bytes)")
    return UnusableFileError(f"is not UTF-8 text (byte {offset}): convert it first")


def kind_of(path: Path) -> str:
    """What a file is by its name and its first bytes. Raises UnusableFileError if it is empty,
    binary or not UTF-8."""
    name = path.with_suffix("") if is_compressed(path) else path
    kind = KINDS.get(name.suffix.lower())
    if kind in (PARQUET, ARROW):
        return kind

    sample = "".join(islice(decoded(path, SAMPLE), 2))  # or the whole file
    if not sample:
        raise UnusableFileError("is empty")
    if kind:
        return kind
    for begun, pattern in BEGINS.items():
        if pattern.match(sample):
            return begun

    return CSV if _begins_as_csv(sample) else TEXT


def _begins_as_csv(sample: str) -> bool:
    """Whether a text begins with the names of fields and rows of as many fields."""
    lines = sample.splitlines(keepends=True)
    reader = csv.reader(lines, delimiter=delimiter_of(lines[0]))
    try:
        names, *rows = islice(reader, ROWS_OF_SAMPLE)
    except csv.Error:
        return False
    return (
        len(names) > 1
        and {len(row) for row in rows} == {len(names)}
        and all(map(NAME_OF_FIELD.fullmatch, names))
    )


def parts_of(
    pieces: Iterable[str], split: Callable[[str], list[str]]
) -> Iterator[list[str]]:
    """The parts into which `split` cuts a text in pieces, many at once."""
    rest = ""
    for piece in pieces:
        *parts, rest = split(rest + piece)
        yield parts
    yield [rest.rstrip("\n")]


def in_batches(texts: Iterable[Text], size: int) -> Iterator[list[Text]]:
    """Texts in lists of `size` characters or bytes or more, except for the last one."""
    batch = []
    n_chars = 0
    for text in texts:
        batch.append(text)
        n_chars += len(text)
        if n_chars >= size:
            yield batch
            batch = []
            n_chars = 0
    yield batch


def delimiter_of(header: str) -> str:
    """The character that separates the fields of a CSV file."""
    return max(",;\t|", key=header.count)
