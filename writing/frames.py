"""A text that is being written, as lines of characters: what the terminal and the animation show."""

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from torch import Tensor

from runs.terminal import printable
from trained.template import Template

BLANK = "·"  # the picture of a blank
WRITTEN, NEW, EMPTY = "written", "new", "empty"  # kinds of cells


class Cell(NamedTuple):
    """A character on the screen."""

    character: str
    kind: str

    @property
    def columns(self) -> int:
        """The columns that a terminal gives to the character: 0 for a combining one, 2 for a wide
        one such as 中."""
        if unicodedata.category(self.character) in ("Mn", "Me", "Cf"):
            return 0
        return 2 if unicodedata.east_asian_width(self.character) in "WF" else 1


def cells(ids: Tensor, before: Tensor, template: Template) -> Iterator[Cell]:
    """The characters of a template with the tokens `ids` `[length]` in its blanks; those are new
    that were blanks in `before` `[length]`.

    A blank is one cell. A control character is shown as in `printable`, a tab as a space.
    """

    vocabulary = template.vocabulary

    def kind_of(tokens: tuple[int, int]) -> str:
        token, earlier = tokens
        if token == vocabulary.mask_token:
            return EMPTY
        return WRITTEN if token == earlier else NEW

    for part, place in template.places():
        if not part.is_blank:
            yield from _cells_of(part.text, WRITTEN)
            continue
        pairs = zip(ids[place].tolist(), before[place].tolist(), strict=True)
        for kind, group in groupby(pairs, kind_of):
            # decoded together, since a token may be part of a character
            tokens = [token for token, _ in group]
            is_empty = kind == EMPTY
            text = BLANK * len(tokens) if is_empty else vocabulary.decode(tokens)
            yield from _cells_of(text, kind)


def _cells_of(text: str, kind: str) -> Iterator[Cell]:
    for character in printable(text).replace("\t", " "):
        yield Cell(character, kind)


def wrap(characters: Iterable[Cell], width: int) -> list[list[Cell]]:
    """Lines of at most `width` columns. A newline ends a line, and so does the last column."""
    lines: list[list[Cell]] = [[]]
    used = 0
    for cell in characters:
        if cell.character == "\n" or (used and used + cell.columns > width):
            lines.append([])
            used = 0

        if cell.character != "\n":
            lines[-1].append(cell)
            used += cell.columns

    return lines
