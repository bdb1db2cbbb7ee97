"""Rows of JSON lines, CSV or TSV from a stream: a text in them changes, or fields are added. All other
bytes stay as they are."""

import csv
import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from configs.keys import ConfigError
from data.text.files import BYTE_ORDER_MARK, delimiter_of
from data.text.tables import has_quotes
from trained.piped import Line

WHITESPACE = re.compile(r"[ \t\r\n]*")
CHARACTER_OF_JSON = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.", re.DOTALL
)
Place = slice | None  # of a field in the text of its row
NO_FIELD = (None, None)
DAMAGED = (ValueError, csv.Error, OSError, EOFError, zlib.error)


class JsonRow(NamedTuple):
    name: str
    line: str
    places: list[Place]
    values: list[str]
    never = ""

    def texts(self) -> list[str]:
        return self.values

    def with_text(self, text: str) -> str:
        place = self.places[0]
        if text == self.values[0] or place is None:
            return self.line
        changed = json_string(text, before=self.line[place])
        return self.line[: place.start] + changed + self.line[place.stop :]

    def with_values(self, values: Mapping[str, Any]) -> str:
        end = self.line.rfind("}")
        if end < 0:  # an empty line
            return self.line
        is_empty = self.line[:end].rstrip().endswith("{")
        added = json.dumps(values, ensure_ascii=self.line.isascii())[1:-1]
        return self.line[:end] + ", " * (not is_empty) + added + self.line[end:]


def json_string(text: str, before: str) -> str:
    """A text as a string of JSON, with the escapes of the string `before`."""
    forms = {}
    for form in CHARACTER_OF_JSON.findall(before[1:-1]):
        forms[json.loads(f'"{form}"')] = form
    for character in {*text}.difference(forms):
        form = json.dumps(character, ensure_ascii=before.isascii())
        forms[character] = form[1:-1]

    return '"' + "".join(map(forms.__getitem__, text)) + '"'


class Dialect(NamedTuple):
    """How a table of CSV or TSV separates its fields."""

    delimiter: str
    has_quotes: bool  # otherwise quotes are text

    def field(self, text: str, before: str = "") -> str:
        """A text as a field. It has quotes if it needs them, or if the field `before` has them."""
        special = {self.delimiter, "\r", "\n"} | ({'"'} - {*before})
        needs_quotes = not special.isdisjoint(text) or text.startswith('"')
        if self.has_quotes and (needs_quotes or before.startswith('"')):
            return '"' + text.replace('"', '""') + '"'
        return text


class CsvRow(NamedTuple):
    name: str
    row: str
    dialect: Dialect
    place: Place  # of the first text
    values: list[str]

    @property
    def never(self) -> str:
        return "" if self.dialect.has_quotes else f"{self.dialect.delimiter}\r\n"

    def texts(self) -> list[str]:
        return self.values

    def with_text(self, text: str) -> str:
        place = self.place
        if text == self.values[0] or place is None:
            return self.row
        changed = self.dialect.field(text, before=self.row[place])
        return self.row[: place.start] + changed + self.row[place.stop :]

    def with_values(self, values: Mapping[str, Any]) -> str:
        if self.place is None:  # an empty line
            return self.row
        content = self.row.rstrip("\r\n")
        added = ""
        for value in values.values():
            text = value if isinstance(value, str) else json.dumps(value)
            added += self.dialect.delimiter + self.dialect.field(text)
        return content + added + self.row[len(content) :]


class Lines:
    """Lines as text with their ends, which are taken one by one."""

    def __init__(self, batches: Iterator[list[Line]]):
        self.batches = batches
        self.waiting: deque[Line] = deque()
        self.name = "line 1"  # of the last line
        self._taken: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.wait()
        if not self.waiting:
            raise StopIteration
        line = self.waiting.popleft()
        self.name = line.name
        self._taken.append(decoded(line))
        return self._taken[-1]

    def wait(self) -> None:
        """Wait for a line, or for the end."""
        while not self.waiting and (batch := next(self.batches, None)) is not None:
            self.waiting.extend(batch)

    def taken(self) -> str:
        """The lines since the last call."""
        text = "".join(self._taken)
        self._taken = []
        return text


def decoded(line: Line) -> str:
    """Raises ValueError."""
    try:
        return line.content.decode() + line.end
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


class Table:
    """The rows of a stream, which are JSON if the first line begins as an object, otherwise CSV.

    `columns` are those of the texts; for JSON dotted if they are nested. A row of JSON without text
    has an empty one. The fields called `added` will be added to each row. Raises ConfigError.
    """

    def __init__(
        self,
        batches: Iterator[list[Line]],
        columns: Sequence[str],
        added: Sequence[str] = (),
    ):
        self.lines = Lines(batches)
        self.lines.wait()
        self.header = ""  # as it is to be written
        with self._named():
            sample = "".join(map(decoded, self.lines.waiting))
            if not sample:
                raise ValueError("the table is empty")
            begin = sample.removeprefix(BYTE_ORDER_MARK).lstrip()
            if begin.startswith("{"):
                self.rows: Any = json_rows(self.lines, columns, added)
            elif begin.startswith("["):
                raise ValueError("it is a JSON list: write one object per line")
            else:
                self.header, self.rows = csv_rows(self.lines, columns, added, sample)

    def batches(self) -> Iterator[list[JsonRow | CsvRow]]:
        """The rows, in batches of those that have arrived. Raises ConfigError at a damaged one,
        after those before it."""
        with self._named():
            yield from self._arrived()

    def _arrived(self) -> Iterator[list[JsonRow | CsvRow]]:
        rows: list[JsonRow | CsvRow] = []
        try:
            for row in self.rows:
                rows.append(row)
                if not self.lines.waiting:
                    yield rows
                    rows = []
        except DAMAGED:
            yield rows
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            raise ConfigError(f"{self.lines.name}: {error}") from error


def json_rows(
    lines: Lines, columns: Sequence[str], added: Sequence[str]
) -> Iterator[JsonRow]:
    """Raises ValueError."""
    has_columns = False
    for line in lines:
        row = _object(line)
        check_new_names(added, row)
        places = []
        texts = []
        for column in columns:
            text, place = field(line, line.find("{"), column) if row else NO_FIELD
            if row and place is None and not has_columns:
                raise ValueError(_lacks(column, row))
            if not isinstance(text, str | None):
                raise ValueError(f"the field {column!r} is not text")
            places.append(place)
            texts.append(text or "")
        has_columns = has_columns or bool(row)
        yield JsonRow(lines.name, line, places, texts)


def _object(line: str) -> dict[str, Any]:
    """Empty for a line of whitespace. Raises ValueError."""
    text = line.removeprefix(BYTE_ORDER_MARK)
    try:
        row = json.loads(text) if text.strip() else {}
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    return row


def csv_rows(
    lines: Lines, columns: Sequence[str], added: Sequence[str], sample: str
) -> tuple[str, Iterator[CsvRow]]:
    """The header to write, and the rows. `sample` is the beginning of the table. Raises
    ValueError."""
    delimiter = delimiter_of(sample.split("\n", 1)[0])
    dialect = Dialect(delimiter, delimiter != "\t" or has_quotes(sample))
    quoting = csv.QUOTE_MINIMAL if dialect.has_quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    names = [name.removeprefix(BYTE_ORDER_MARK) for name in next(reader)]
    check_new_names(added, names)
    for column in columns:
        if column not in names:
            raise ValueError(_lacks(column, names))

    header = CsvRow("", lines.taken(), dialect, slice(0), [])
    indices = [names.index(column) for column in columns]
    plain = f"[^{re.escape(delimiter)}\r\n]*"
    one_field = re.compile(f'"(?:[^"]|"")*"|{plain}' if dialect.has_quotes else plain)

    def rows() -> Iterator[CsvRow]:
        for values in reader:
            row = lines.taken()
            texts = [""] * len(indices)
            place = None
            if values:
                if len(values) != len(names):
                    raise ValueError(
                        f"it has {len(values)} fields, but the first line {len(names)}"
                    )
                texts = [values[i] for i in indices]
                place = place_of(row, one_field, indices[0])
            yield CsvRow(lines.name, row, dialect, place, texts)

    return header.with_values(dict(zip(added, added, strict=True))), rows()


def place_of(row: str, one_field: re.Pattern[str], index: int) -> slice:
    """The place of a field of CSV in its row."""
    begin = 0
    for _ in range(index):
        begin = _end(one_field, row, begin) + 1
    return slice(begin, _end(one_field, row, begin))


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    """The end of a match at an offset, for a pattern that matches everywhere."""
    match = pattern.match(text, begin)
    return match.end() if match else begin


def check_new_names(added: Sequence[str], names: Iterable[str]) -> None:
    """Raise ValueError if a field of a table is called as one that is added."""
    for name in {*added}.intersection(names):
        raise ValueError(f"it has a column {name!r} already: rename that column")


def field(text: str, begin: int, column: str) -> tuple[Any, Place]:
    """The value of a field of the JSON object at an offset, and its place; None without it."""
    result: tuple[Any, Place] = NO_FIELD
    first, _, rest = column.partition(".")
    for name, value, place in _fields(text, begin):
        if name == column:
            return value, place
        if name == first and rest and isinstance(value, dict):
            result = field(text, place.start, rest)
    return result


def _fields(text: str, begin: int) -> Iterator[tuple[str, Any, slice]]:
    """The fields of the JSON object at an offset, and the places of their values."""
    decode = json.JSONDecoder().raw_decode
    offset = _end(WHITESPACE, text, begin + 1)
    while text[offset] != "}":
        name, offset = decode(text, offset)
        colon = _end(WHITESPACE, text, offset)
        begin = _end(WHITESPACE, text, colon + 1)
        value, end = decode(text, begin)
        yield name, value, slice(begin, end)
        offset = _end(WHITESPACE, text, end)
        if text[offset] == ",":
            offset = _end(WHITESPACE, text, offset + 1)


def _lacks(column: str, names: Iterable[str]) -> str:
    return f"it has no column {column!r}, but {', '.join(map(repr, names))[:200]}"
