"""Prints predictions: texts with their blanks filled, or the labels of texts."""

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from torch import Tensor

from data.tasks.task import CHARACTER, PAIR
from runs.terminal import in_one_line, printable
from trained.examples import n_cut, n_unknown
from trained.fill import Filled, encode, fill, in_template
from trained.load import Trained
from trained.saved_classifier import SavedClassifier

SEPARATOR = "\t"  # between the texts of a pair
WITHOUT_BLANKS = "text(s) without a blank: write _ or [MASK] for one, and send a file to standard input"


@dataclass(frozen=True)
class Fillings:
    """Fills the blanks of texts and prints them."""

    trained: Trained
    top: int | None  # candidates to print per blank
    in_json: bool
    unknown: bool  # read characters that the run does not know as blanks
    never: str  # characters that no blank becomes

    def read(self, text: str) -> tuple[str, Tensor]:
        """A text and its token ids. Raises ValueError."""
        return text, encode(text, self.trained, unknown=self.unknown)

    def show(self, texts: Sequence[tuple[str, Tensor]]) -> Counter[str]:
        """Print texts of `read`; returns notes for the user, with counts."""
        ids = [each for _, each in texts]
        n_without = 0
        filled_texts = fill(
            self.trained, ids, n_candidates=self.top or 1, never=self.never
        )
        for filled, (text, _) in zip(filled_texts, texts, strict=True):
            n_without += not filled.guesses
            whole, offsets = in_template(
                text, filled.ids, self.trained.vocabulary, self.unknown
            )
            guesses = [
                guess._replace(offset=offset)
                for guess, offset in zip(filled.guesses, offsets, strict=True)
            ]
            self._show(filled._replace(text=whole, guesses=guesses))

        return Counter({WITHOUT_BLANKS: n_without})

    def _show(self, filled: Filled) -> None:
        if self.in_json:
            unit = "character" if self.trained.vocabulary.is_characters else "token"
            blanks = []
            for guess in filled.guesses:
                candidates = [
                    {unit: text, "probability": p} for text, p in guess.candidates
                ]
                blanks.append({"offset": guess.offset, "candidates": candidates})
            print(as_json({"text": filled.text, "blanks": blanks}))
            return

        print(_colored(filled) if sys.stdout.isatty() else filled.text)
        if self.top:
            for guess in filled.guesses:
                candidates = [
                    f"{text!r} {share:.1%}" for text, share in guess.candidates
                ]
                print(f"  {guess.offset:4}  {'  '.join(candidates)}")


@dataclass(frozen=True)
class Labels:
    """Classifies texts and prints their labels."""

    saved: SavedClassifier
    top: int | None  # labels to print per text, or per piece if characters have labels
    in_json: bool

    def read(self, text: str) -> list[str]:
        """The texts that have a label together: one, or two of a pair. Raises ValueError."""
        if self.saved.kind != PAIR:
            return [text]
        if text.count(SEPARATOR) != 1:
            raise ValueError("a pair is two texts with a tab between them")
        return text.split(SEPARATOR)

    def show(self, texts: Sequence[list[str]]) -> Counter[str]:
        """Print the labels of texts of `read`; returns notes for the user, with counts."""
        flat = list(chain.from_iterable(texts))
        if flat:
            for parts, probabilities in zip(
                texts, self.saved.probabilities(flat), strict=True
            ):
                self._show(SEPARATOR.join(parts), probabilities)

        vocabulary = self.saved.vocabulary
        cut = f"texts were cut to {self.saved.longest} {vocabulary.tokens}"

        return Counter(
            {
                cut: n_cut(flat, self.saved),
                "texts are empty: their labels mean nothing": flat.count(""),
                "characters are not in the classifier's vocabulary": n_unknown(
                    flat, vocabulary
                ),
            }
        )

    def _show(self, text: str, probabilities: Tensor) -> None:
        """`probabilities` is `[1, n_labels]`, or `[length, n_labels]` for the characters."""
        of_characters = self.saved.kind == CHARACTER
        pieces = (
            pieces_of(text, probabilities)
            if of_characters
            else [(text, probabilities[0])]
        )
        labelled = [
            {"text": piece, "labels": self._best(each)} for piece, each in pieces
        ]
        if self.in_json:
            print(
                as_json(
                    {"text": text, "pieces": labelled} if of_characters else labelled[0]
                )
            )
            return

        for piece in labelled:
            shown = [
                f"{in_one_line(each['label'])} {each['probability']:.1%}"
                for each in piece["labels"]
            ]
            start = f"{piece['text']!r}  " if of_characters else ""
            print(start + "  ".join(shown))

    def _best(self, probabilities: Tensor) -> list[dict[str, Any]]:
        labels = self.saved.labels
        best = probabilities.topk(min(self.top or 1, len(labels))).indices.tolist()
        return [
            {"label": labels[i], "probability": float(probabilities[i])} for i in best
        ]


def as_json(content: Mapping[str, Any]) -> str:
    """JSON for the standard output, with escapes for characters beyond ASCII unless its encoding is
    UTF-8."""
    is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return json.dumps(content, ensure_ascii=not is_utf8)


def pieces_of(text: str, probabilities: Tensor) -> list[tuple[str, Tensor]]:
    """Neighboring characters with the same most probable label, and the mean of their
    probabilities."""
    _, lengths = probabilities.argmax(1).unique_consecutive(return_counts=True)
    ends = [0, *lengths.cumsum(0).tolist()]
    return [(text[i:j], probabilities[i:j].mean(0)) for i, j in pairwise(ends)]


def _colored(filled: Filled) -> str:
    """A filled text for a terminal, with the color of the probability of each guess."""
    characters = [printable(character) for character in filled.text]
    if "NO_COLOR" in os.environ:
        return "".join(characters)
    for guess in filled.guesses:
        end = guess.offset + len(guess.candidates[0][0])
        if guess.offset < end <= len(characters):  # a token may be no whole character
            color = _color_of(guess.probability)
            characters[guess.offset] = f"\x1b[1;{color}m{characters[guess.offset]}"
            characters[end - 1] += "\x1b[0m"

    return "".join(characters)


def _color_of(probability: float) -> str:
    if probability >= 0.9:
        return "32"  # green
    if probability >= 0.5:
        return "33"  # yellow
    return "31"  # red
