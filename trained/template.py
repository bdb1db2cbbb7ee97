r"""Texts with blanks. Everything else in them comes out as it came in.

A blank is written `_` or `[MASK]`, or as the user chooses. A backslash before it makes it plain
text: `\_` stands for `_`, and `\\_` for a backslash and a blank. In a line, models read `\n` as a line
break, and `\\n` as `\n`; both come out as they came in. All other backslashes are plain.
"""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from data.vocabulary import MASK, Vocabulary

UNREADABLE = -1  # in place of the id of a text without one; models read [MASK]
MOST_BLANKS = 10_000  # of a text; a pass of the model fills one blank of each window
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which JSON can escape
LINE_BREAK = re.compile(r"(\\?)\\n")
CHARACTER = re.compile(".", re.DOTALL)
CHARACTER_OF_LINE = re.compile(r"\\?\\n|.", re.DOTALL)
WORD = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Notation:
    """How a text writes its blanks."""

    blank: str | None = None  # None: `_` or `[MASK]`
    raw: bool = False  # all backslashes are plain text
    in_lines: bool = False  # texts are lines

    @property
    def has_line_breaks(self) -> bool:
        return self.in_lines and not self.raw

    def read(self, text: str) -> str:
        """The text that models read in place of plain text."""
        text = SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
        if not self.has_line_breaks:
            return text
        return LINE_BREAK.sub(lambda match: r"\n" if match[1] else "\n", text)

    def symbols(self, text: str) -> Iterator[tuple[str, bool]]:
        """The parts of a text without escapes, and whether each one is a blank."""
        end = 0
        for match in self._pattern.finditer(text):
            n_backslashes = len(match["backslashes"])
            before = text[end : match.start()] + "\\" * (n_backslashes // 2)
            end = match.end()
            if n_backslashes % 2:
                yield before + match["mark"], False
            else:
                yield before, False
                yield match["mark"], True
        yield text[end:], False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        marks = [self.blank] if self.blank else ["_", MASK]
        either = "|".join(map(re.escape, marks))
        backslashes = "" if self.raw else r"\\*"
        return re.compile(f"(?P<backslashes>{backslashes})(?P<mark>{either})")


def add_notation(parser: ArgumentParser) -> None:
    """Add the options of `Notation`."""
    blank = "how the text writes a blank (default: _ or [MASK])"
    parser.add_argument("--blank", metavar="STRING", type=_not_empty, help=blank)
    raw = "read all backslashes as plain text"
    parser.add_argument("--raw", action="store_true", help=raw)


def _not_empty(word: str) -> str:
    if not word:
        raise ArgumentTypeError("a blank needs a character")
    return word


class Part(NamedTuple):
    """A part of a text: plain, or some blanks in a row."""

    text: str  # empty for blanks
    ids: Tensor  # [n], [MASK] for blanks
    is_blank: bool


@dataclass(frozen=True)
class Template:
    """A text with blanks."""

    parts: list[Part]
    vocabulary: Vocabulary

    @cached_property
    def ids(self) -> Tensor:
        """`[n]`."""
        empty = torch.empty(0, dtype=torch.int64)
        return torch.cat([empty, *(part.ids for part in self.parts)])

    def places(self) -> Iterator[tuple[Part, slice]]:
        """The parts, and where their tokens are."""
        begin = 0
        for part in self.parts:
            end = begin + len(part.ids)
            yield part, slice(begin, end)
            begin = end

    def filled(self, ids: Tensor) -> tuple[str, Iterator[int]]:
        """The text with the tokens of `ids` `[n]` in its blanks, and the offset of each of them.

        Plain text stays as it is, even where the tokenizer changes or does not know it. The offsets
        are computed on demand, in quadratic time.
        """
        vocabulary = self.vocabulary
        # without a token for a space, each word has one, also at the beginning of a line
        has_spaces = vocabulary.is_characters or len(vocabulary.encode(" ")) > 0
        text = ""
        offsets: list[Iterator[int]] = []
        for part, place in self.places():
            if not part.is_blank:
                text += part.text
                continue
            tokens = ids[place]
            filled = vocabulary.decode(tokens)
            # the token of a word stands for the space before it too
            is_after_space = text.endswith(" ")
            if not has_spaces:
                is_after_space = not text or text[-1].isspace()
            takes_space = vocabulary.has_spaces_in_words and filled.startswith(" ")
            n_left_out = int(takes_space and is_after_space)
            offsets.append(self._offsets(tokens, len(text) - n_left_out))
            text += filled[n_left_out:]

        return text, chain.from_iterable(offsets)

    def _offsets(self, tokens: Tensor, begin: int) -> Iterator[int]:
        for i in range(len(tokens)):
            yield max(0, begin + len(self.vocabulary.decode(tokens[:i])))


def blanks_of(n: int, vocabulary: Vocabulary) -> Part:
    return Part("", torch.full((n,), vocabulary.mask_token), True)


def read_template(
    text: str,
    vocabulary: Vocabulary,
    notation: Notation = Notation(),
    *,
    unknown: bool = False,
    most_blanks: int = MOST_BLANKS,
) -> Template:
    """The template of a text. With `unknown`, characters that the vocabulary does not have are
    blanks. Raises ValueError for more than `most_blanks` blanks."""
    symbols = notation.symbols(text)
    if unknown and vocabulary.is_characters:
        symbols = _with_unknown(symbols, notation, set(vocabulary.characters))
    groups = []
    for is_blank, group in groupby(symbols, lambda symbol: symbol[1]):
        groups.append((is_blank, [each for each, _ in group]))
    parts = []
    for number, (is_blank, texts) in enumerate(groups, start=1):
        plain = "".join(texts)
        if is_blank:
            parts.append(blanks_of(len(texts), vocabulary))
        elif plain:
            read = notation.read(plain)
            if number < len(groups) and vocabulary.has_spaces_in_words:
                read = read.removesuffix(" ")  # of the word in the blank after it
            parts.append(Part(plain, ids_of(read, vocabulary), False))

    n_blanks = sum(len(part.ids) for part in parts if part.is_blank)
    if n_blanks > most_blanks:
        raise ValueError(
            f"the text has {n_blanks:,} blanks, too many to fill: {most_blanks:,} at most"
        )
    return Template(parts, vocabulary)


def _with_unknown(
    symbols: Iterator[tuple[str, bool]], notation: Notation, known: set[str]
) -> Iterator[tuple[str, bool]]:
    characters = CHARACTER_OF_LINE if notation.has_line_breaks else CHARACTER
    for text, is_blank in symbols:
        if is_blank:
            yield text, True
            continue
        for character in characters.findall(text):
            yield character, not known.issuperset(notation.read(character))


def ids_of(text: str, vocabulary: Vocabulary) -> Tensor:
    """The token ids of a text `[n]`. A character that the vocabulary does not have becomes `[UNK]`
    if it has that token, otherwise UNREADABLE; so does a word that a tokenizer refuses."""

    @cache
    def of_unit(unit: str) -> Tensor:
        try:
            return vocabulary.encode(unit)
        except ValueError:
            return torch.tensor([UNREADABLE])

    try:
        return vocabulary.encode(text)
    except ValueError:
        units = CHARACTER if vocabulary.is_characters else WORD
        return torch.cat([of_unit(unit) for unit in units.findall(text)])


def readable(ids: Tensor, mask_token: int) -> Tensor:
    """Token ids for a model, in which UNREADABLE text is masked."""
    return ids.masked_fill(ids == UNREADABLE, mask_token)
