"""The documents of tables: JSON, CSV, TSV, Parquet and Arrow files with one document per row.

A document is the text in one field of a row. Rows without text are left out. Many rows are read at
once, because calls per row would take more time than the rows.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from data.text.files import (
    ARROW,
    CSV,
    JSON,
    PARQUET,
    TSV,
    UnusableFileError,
    decoded,
    delimiter_of,
    in_batches,
    kind_of,
    parts_of,
    pyarrow,
)

OR_RAW = ", or set data.raw=true"
NO_NAMES = (
    ", add a line of names if its first line has none, or set data.raw=true"
    " data.documents=lines to read all lines as they are"
)
COLUMN = "text"  # the field that is read if none is named
NAMED = 10  # fields that an error names
LONGEST_NAME = 40  # characters of each
TABLES = (JSON, CSV, TSV, PARQUET, ARROW)
ROWS = 8_192  # at most, that are read at once from Parquet and Arrow files
STRINGS = ("str", "text", "string", "large_string", "string_view")  # types of fields

BETWEEN_VALUES = " \t\r\n,]"  # of JSON

csv.field_size_limit(sys.maxsize)  # the default refuses fields of 131,072 characters


class UnknownFieldError(UnusableFileError):
    """A table does not have the field, or no text in it."""


def documents_of(path: Path, kind: str, column: str, size: int) -> Iterator[list[str]]:
    """The documents of a table, in lists of about `size` characters.

    `column` is dotted for nested fields; if it is empty, the field is `text`. Raises
    UnusableFileError if the file is damaged, or does not have the field.
    """
    if kind == PARQUET:
        return _of_parquet(path, column, size)
    if kind == ARROW:
        return _of_arrow(path, column, size)
    pieces = decoded(path, size)
    if kind == JSON:
        return _of_json(pieces, column)
    return _of_csv(_rows_of_csv(pieces, kind), column, size)


def _chosen(kinds: Mapping[str, str], column: str, otherwise: str) -> str:
    """The field to read; `kinds` are those of all fields. An error says what to do `otherwise`."""
    name = column or COLUMN
    if kinds.get(name) in STRINGS:
        return name

    fields = []
    for field, kind in kinds.items():
        if "list" in kind and f"{name}.".startswith(f"{field}."):
            raise UnknownFieldError(
                f"has lists in its field {field!r}, which are not read: write the texts of each"
                " list into a field of strings"
            )
        fields.append(f"{field[:LONGEST_NAME]!r} ({kind})")
    raise UnknownFieldError(
        f"has no field {name!r} of strings (it has {', '.join(fields[:NAMED]) or 'none'}):"
        f" choose by data.column=NAME{otherwise}"
    )


# JSON


def _of_json(pieces: Iterator[str], column: str) -> Iterator[list[str]]:
    path = []
    for rows in _rows_of_json(pieces):
        if not path:
            name = _chosen(_kinds_of_json(rows), column, OR_RAW)
            is_flat = any(name in row for row in rows)
            path = [name] if is_flat else name.split(".")
        documents = list(filter(None, _nested_values(rows, path)))
        others = set(map(type, documents)) - {str}
        if others:
            kind = others.pop().__name__
            raise UnknownFieldError(f"has a row whose field is not text, but {kind}")
        yield _without_surrogates(documents)


def _nested_values(rows: list[Any], path: list[str]) -> list[Any]:
    for name in path:
        rows = [row.get(name) if isinstance(row, dict) else None for row in rows]
    return rows


def _kinds_of_json(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The types of all fields, which are dotted if they are nested."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, kind in _fields_of(row):
            kinds.setdefault(name, kind)
    return kinds


def _fields_of(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _fields_of(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, type(value).__name__


def _without_surrogates(documents: list[str]) -> list[str]:
    """Documents with U+FFFD in place of lone surrogates, which JSON can escape and UTF-8 cannot
    encode."""
    try:
        "".join(documents).encode()
    except UnicodeEncodeError:
        return [
            document.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for document in documents
        ]
    return documents


def _rows_of_json(pieces: Iterator[str]) -> Iterator[list[dict]]:
    """The objects of JSON lines, or of JSON values in a list or after each other."""
    begin = next(pieces).lstrip()
    while begin.startswith("{") and "\n" not in begin:
        begin += next(pieces, "\n")
    line, _, rest = begin.partition("\n")
    is_lines = begin.startswith("{") and rest.strip() and _is_json(line)
    read = _values_of_lines if is_lines else _values
    for values in read(chain([begin.removeprefix("[")], pieces)):
        types = set(map(type, values))
        if types - {dict, str}:
            raise UnusableFileError("has JSON values that are neither objects nor text")
        if str in types:
            values = [{COLUMN: v} if isinstance(v, str) else v for v in values]
        if values:
            yield values


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _values_of_lines(pieces: Iterable[str]) -> Iterator[list[Any]]:
    """The values of JSON lines, many at once."""
    n_lines = 0
    for lines in _lines_of(pieces):
        text = ",".join(filter(str.strip, lines))
        try:
            values = json.loads(f"[{text}]")
        except ValueError:
            number = n_lines + [_is_json(line.strip() or "0") for line in lines].index(
                False
            )
            raise UnusableFileError(
                f"has no JSON in line {number + 1}: repair it{OR_RAW}"
            ) from None
        yield values
        n_lines += len(lines)


def _lines_of(pieces: Iterable[str]) -> Iterator[list[str]]:
    """The lines of a text in pieces, many at once, without their ends."""
    return parts_of(pieces, lambda text: text.split("\n"))


def _values(pieces: Iterable[str]) -> Iterator[list[Any]]:
    """JSON values that follow each other or are in one list, many at once."""
    value_at = json.JSONDecoder().raw_decode
    text = ""
    n_needed = 0  # characters for the next attempt, if a value is not whole
    for piece in chain(pieces, [""]):
        text += piece + "\n" * (not piece)
        if piece and len(text) < n_needed:
            continue
        values = []
        offset = _next_value(text, 0)
        with suppress(ValueError):  # not whole
            while offset < len(text):
                value, end = value_at(text, offset)
                values.append(value)
                offset = _next_value(text, end)
        yield values
        text = text[offset:]
        n_needed = 2 * len(text)
    if text:
        raise UnusableFileError(f"has no JSON at {text[:40]!r}: repair it{OR_RAW}")


def _next_value(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] in BETWEEN_VALUES:
        offset += 1
    return offset


# CSV and TSV


def rows_of(path: Path, size: int) -> Iterator[dict[str, Any]]:
    """The rows of a JSON, CSV or TSV file.

    Raises UnusableFileError if the file is damaged, or of another kind.
    """
    kind = kind_of(path)
    pieces = decoded(path, size)
    if kind == JSON:
        return chain.from_iterable(_rows_of_json(pieces))
    if kind not in (CSV, TSV):
        raise UnusableFileError(f"is {kind}, and no CSV, TSV or JSON lines")

    rows = _rows_of_csv(pieces, kind)
    names = next(rows)
    if len({*names}) < len(names):
        raise UnusableFileError(f"has two columns of one name: {', '.join(names)}")
    return (dict(zip(names, row, strict=True)) for row in rows)


def _of_csv(rows: Iterator[list[str]], column: str, size: int) -> Iterator[list[str]]:
    names = next(rows)
    index = names.index(_chosen(dict.fromkeys(names, "text"), column, NO_NAMES))
    return in_batches((row[index] for row in rows if row[index]), size)


def _rows_of_csv(pieces: Iterator[str], kind: str) -> Iterator[list[str]]:
    """The names of the fields, and the rows."""
    begin = next(pieces)
    header, *_ = begin.split("\n", 1)
    delimiter = "\t" if kind == TSV else delimiter_of(header)
    is_quoted = delimiter != "\t" or has_quotes(begin)
    reader = csv.reader(
        _with_ends(chain([begin], pieces)),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        strict=True,
    )
    n_fields = 0
    try:
        for row in filter(None, reader):
            n_fields = n_fields or len(row)
            if len(row) != n_fields:
                raise UnusableFileError(
                    f"has {len(row)} fields in line {reader.line_num}, but {n_fields} in its"
                    " first: quote fields that contain commas"
                )
            yield row
    except csv.Error as error:
        raise UnusableFileError(
            f"has no {kind} in line {reader.line_num} ({error})"
        ) from None


def _with_ends(pieces: Iterable[str]) -> Iterator[str]:
    for lines in _lines_of(pieces):
        for line in lines:
            yield line + "\n"


def has_quotes(begin: str) -> bool:
    """Whether the quotes in tab-separated values enclose fields; in others they are text."""
    lines = begin.splitlines(keepends=True)
    try:
        lengths = [len(row) for row in csv.reader(lines, delimiter="\t", strict=True)]
    except csv.Error as error:
        return "unexpected end" in str(error)  # of a field that goes on after `begin`
    return len(set(lengths[:-1])) < 2


# Parquet and Arrow


def _of_parquet(path: Path, column: str, size: int) -> Iterator[list[str]]:
    arrow = pyarrow(path)
    # without a buffer, it would read a whole row group
    file = arrow.parquet.ParquetFile(path, buffer_size=size)
    name = _chosen(_kinds_of_arrow(arrow, file.schema_arrow), column, "")
    columns = [file.schema.column(i).path for i in range(len(file.schema))]
    number = columns.index(name)
    n_bytes = 1
    for i in range(file.num_row_groups):
        n_bytes += file.metadata.row_group(i).column(number).total_uncompressed_size
    n_rows = _rows_at_once(file.metadata.num_rows, n_bytes, size)
    for batch in file.iter_batches(n_rows, columns=[name]):
        yield _strings(_nested(arrow, batch, name))


def _rows_at_once(n_rows: int, n_bytes: int, size: int) -> int:
    return min(max(size * n_rows // n_bytes, 1), ROWS)


def _of_arrow(path: Path, column: str, size: int) -> Iterator[list[str]]:
    """The documents of a stream, as data sets are saved, or of a file in Arrow's other format."""
    arrow = pyarrow(path)
    with arrow.memory_map(str(path)) as file:
        is_stream = file.read(6) != b"ARROW1"
        file.seek(0)
        if is_stream:
            reader = arrow.ipc.open_stream(file)
            batches = iter(reader)
        else:
            reader = arrow.ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        name = _chosen(_kinds_of_arrow(arrow, reader.schema), column, "")
        for batch in batches:
            values = _nested(arrow, batch, name)
            n_rows = _rows_at_once(len(values), values.nbytes + 1, size)
            for begin in range(0, len(values), n_rows):
                yield _strings(values.slice(begin, n_rows))


def _kinds_of_arrow(arrow: Any, fields: Iterable[Any]) -> dict[str, str]:
    """The types of all fields, which are dotted if they are nested."""
    kinds = {}
    for field in fields:
        kind = field.type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        if arrow.types.is_struct(kind):
            for nested, of_nested in _kinds_of_arrow(arrow, kind.fields).items():
                kinds[f"{field.name}.{nested}"] = of_nested
        else:
            kinds[field.name] = str(kind)
    return kinds


def _nested(arrow: Any, batch: Any, name: str) -> Any:
    """The values of a field, which is dotted if it is nested."""
    if name in batch.schema.names:
        return batch.column(name)
    first, *path = name.split(".")
    return arrow.compute.struct_field(batch.column(first), path)


def _strings(values: Any) -> list[str]:
    return list(filter(None, values.to_pylist()))
