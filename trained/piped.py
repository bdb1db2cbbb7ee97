"""Reads texts line by line, as they arrive, up to the first one that cannot be read, and writes them."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from configs.keys import ConfigError
from data.text.files import BEGINS, JSON

T = TypeVar("T")
CHUNK = 65_536  # bytes of standard input at once
LONGEST_LINE = 2**24  # bytes


class Item(Protocol):
    """A text, or the texts of a row, and how they are written after a prediction."""

    @property
    def name(self) -> str: ...

    @property
    def never(self) -> str:
        """The characters that no blank of it becomes."""
        ...

    def texts(self) -> list[str]:
        """Raises UnicodeError."""
        ...

    def with_text(self, text: str) -> str:
        """The item with another text in place of its first."""
        ...

    def with_values(self, values: Mapping[str, Any]) -> str:
        """The item with further fields."""
        ...


class Line(NamedTuple):
    name: str
    content: bytes
    # of the line: a line feed, perhaps after a carriage return, or nothing
    end: str = "\n"

    @property
    def never(self) -> str:
        return "\n"

    @property
    def is_json(self) -> bool:
        return bool(BEGINS[JSON].match(self.content.decode(errors="replace")))

    def texts(self) -> list[str]:
        return [self.content.decode()]

    def with_text(self, text: str) -> str:
        return text + self.end

    def with_values(self, values: Mapping[str, Any]) -> str:
        return "\t".join(str(value) for value in values.values()) + "\n"


class Argument(Line):
    """A text of a command line, which may have line breaks."""

    never = ""


def named(texts: Iterable[str]) -> Iterator[Argument]:
    """The texts of a command line."""
    for number, text in enumerate(texts, start=1):
        yield Argument(f"text {number}", text.encode("utf-8", "surrogateescape"))


def lines(source: BinaryIO) -> Iterator[list[Line]]:
    """The lines of a stream, in batches of those that have arrived: no line waits for others.

    Raises ConfigError if a line has more than 16 MiB.
    """
    n_lines = 0
    rest = b""
    while True:
        chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
        whole = (rest + chunk).split(b"\n")
        rest = whole.pop()
        batch = []
        for number, content in enumerate(whole, n_lines + 1):
            text = content.removesuffix(b"\r")
            end = "\n" if text == content else "\r\n"
            batch.append(Line(f"line {number}", text, end))
        n_lines += len(whole)
        if not chunk and rest:
            batch.append(Line(f"line {n_lines + 1}", rest, ""))
        yield batch
        if not chunk:
            return
        if len(rest) > LONGEST_LINE:
            raise ConfigError(
                f"line {n_lines + 1} is longer than {LONGEST_LINE:,} bytes"
            )


def write_as_read() -> None:
    """Write texts in UTF-8, with their own line ends, as they are read. A terminal has its own
    encoding."""
    if not sys.stdout.isatty():
        sys.stdout.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", newline=""
        )


def read_until_error(
    items: Sequence[Item], read: Callable[[list[str]], T]
) -> tuple[list[tuple[Item, T]], str]:
    """The items with the results of `read` for their texts, up to the first that it cannot read,
    and why it cannot."""
    results: list[tuple[Item, T]] = []
    for item in items:
        try:
            results.append((item, read(item.texts())))
        except UnicodeError:
            return results, f"{item.name} is not UTF-8 text"
        except ValueError as error:
            return results, f"{item.name}: {error}"

    return results, ""
