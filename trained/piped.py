"""Reads texts line by line, as they arrive, up to the first one that cannot be read."""

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from configs.keys import ConfigError

T = TypeVar("T")
CHUNK = 65_536  # bytes of standard input at once
LONGEST_LINE = 2**20  # bytes


def lines(source: BinaryIO) -> Iterator[list[tuple[str, bytes]]]:
    """The lines of a stream and their names, in batches of those that have arrived: no line waits
    for others.

    Raises ConfigError if a line has more than 1 MiB.
    """
    n_lines = 0
    rest = b""
    while True:
        chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
        whole = (rest + chunk).split(b"\n")
        rest = whole.pop()
        if not chunk and rest:
            whole = [rest]
        yield [
            (f"line {number}", line.removesuffix(b"\r"))
            for number, line in enumerate(whole, n_lines + 1)
        ]
        if not chunk:
            return
        n_lines += len(whole)
        if len(rest) > LONGEST_LINE:
            raise ConfigError(
                f"line {n_lines + 1} is longer than {LONGEST_LINE:,} bytes"
            )


def read_until_error(
    texts: Sequence[tuple[str, str | bytes]], read: Callable[[str], T]
) -> tuple[list[T], str]:
    """The results of `read` for texts with names, up to the first text that it cannot read, and
    why it cannot."""
    results: list[T] = []
    for name, text in texts:
        try:
            content = text.encode() if isinstance(text, str) else text
            results.append(read(content.decode()))
        except UnicodeError:
            return results, f"{name} is not UTF-8 text"
        except ValueError as error:
            return results, f"{name}: {error}"

    return results, ""
