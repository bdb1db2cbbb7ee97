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

from data.tasks.table import SEPARATOR as BETWEEN_LABELS
from data.tasks.task import CHARACTER, LABELS, NUMBER, OF_TOKENS, PAIR, WORDS
from data.vocabulary import MASK, UNK, Vocabulary
from runs.terminal import in_one_line, printable
from trained.examples import n_long, n_unknown
from trained.fill import Filled, fill
from trained.load import Trained
from trained.piped import Item, Line
from trained.saved_classifier import SavedClassifier
from trained.score import scores_of
from trained.template import (
    UNREADABLE,
    Notation,
    Template,
    ids_of,
    read_template,
)

SEPARATOR = "\t"  # between the texts of a pair
WITHOUT_BLANKS = "text(s) without a blank: --help says how to write one; send a file to standard input"
UNKNOWN = "unknown character(s) or token(s), which the run reads as {}"


@dataclass(frozen=True)
class Fillings:
    """Fills the blanks of texts and prints them."""

    n_texts = 1  # of an item
    added = ()  # fields of a table

    trained: Trained
    top: int | None  # candidates to print per blank
    in_json: bool
    notation: Notation
    unknown: bool  # read characters that the run does not know as blanks

    def read(self, texts: Sequence[str]) -> Template:
        """The template of one text. Raises ValueError."""
        vocabulary = self.trained.vocabulary
        return read_template(texts[0], vocabulary, self.notation, unknown=self.unknown)

    def show(self, items: Sequence[tuple[Item, Template]]) -> Counter[str]:
        """Print items with the results of `read`; returns notes for the user, with counts."""
        templates = [template for _, template in items]
        n_candidates = self.top or 1
        never = items[0][0].never if items else ""  # of items of one source
        filled_texts = fill(
            self.trained, templates, n_candidates=n_candidates, never=never
        )
        n_without = 0
        for (item, _), filled in zip(items, filled_texts, strict=True):
            n_without += not filled.guesses
            self._show(item, filled)

        ids = [template.ids for template in templates]
        unknown = unknown_in(ids, self.trained.vocabulary)
        return unknown + Counter({WITHOUT_BLANKS: n_without})

    def _show(self, item: Item, filled: Filled) -> None:
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

        text = item.with_text(filled.text)
        if sys.stdout.isatty():
            is_line = isinstance(item, Line)
            print(_colored(filled) if is_line else printable(text.rstrip("\r\n")))
        else:
            sys.stdout.write(text)
        if self.top:
            if not text.endswith("\n"):
                print()
            for guess in filled.guesses:
                candidates = [
                    f"{text!r} {share:.1%}" for text, share in guess.candidates
                ]
                print(f"  {guess.offset:4}  {'  '.join(candidates)}")


@dataclass(frozen=True)
class Scores:
    """Scores texts by their pseudo-log-likelihood and prints it."""

    n_texts = 1
    added = ("score", "score_per_character")

    trained: Trained
    in_json: bool
    notation: Notation

    def read(self, texts: Sequence[str]) -> str:
        return self.notation.read(texts[0])

    def show(self, items: Sequence[tuple[Item, str]]) -> Counter[str]:
        """Print items with the results of `read`; returns notes for the user, with counts."""
        vocabulary = self.trained.vocabulary
        ids = [ids_of(text, vocabulary) for _, text in items]
        scores = scores_of(self.trained, ids)
        for (item, text), score in zip(items, scores, strict=True):
            n_scored = len(text) - sum(vocabulary.lost(text))
            values = {
                "score": round(score, 4),
                "score_per_character": round(score / max(n_scored, 1), 4),
            }
            if self.in_json:
                print(as_json({"text": text} | values))
            else:
                sys.stdout.write(item.with_values(values))

        return unknown_in(ids, vocabulary)


def unknown_in(texts: Sequence[Tensor], vocabulary: Vocabulary) -> Counter[str]:
    """The note about what a run does not know in token ids `[n]`."""
    number = vocabulary.unknown_token
    read_as = UNK
    if number is None:
        number = UNREADABLE
        read_as = MASK
    n_unknown = sum(int((ids == number).sum()) for ids in texts)

    return Counter({UNKNOWN.format(read_as): n_unknown})


@dataclass(frozen=True)
class Labels:
    """Classifies texts and prints their labels."""

    saved: SavedClassifier
    top: int | None  # labels to print per text, or per piece if parts of it have labels
    in_json: bool
    notation: Notation

    @property
    def n_texts(self) -> int:
        return 2 if self.saved.kind == PAIR else 1

    @property
    def added(self) -> tuple[str, ...]:
        """The fields that are added to a table."""
        if self.saved.kind in (*OF_TOKENS, LABELS, NUMBER):
            return ("prediction",)
        return ("prediction", "probability")

    def read(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts that have a label together: one, or two of a pair. Raises ValueError."""
        if self.saved.kind == PAIR and len(texts) == 1:
            texts = texts[0].split(SEPARATOR)
            if len(texts) != 2:
                raise ValueError("a pair is two texts with a tab between them")
        return [self.notation.read(text) for text in texts]

    def show(self, items: Sequence[tuple[Item, Sequence[str]]]) -> Counter[str]:
        """Print items with the results of `read`; returns notes for the user, with counts."""
        flat = list(chain.from_iterable(texts for _, texts in items))
        if flat:
            for (item, texts), probabilities in zip(
                items, self.saved.probabilities(flat), strict=True
            ):
                self._show(item, SEPARATOR.join(texts), probabilities)

        vocabulary = self.saved.vocabulary
        longest = f"{self.saved.longest} {vocabulary.tokens}"

        return Counter(
            {
                f"texts were read in windows of {longest}": n_long(flat, self.saved),
                "texts are empty: their labels mean nothing": flat.count(""),
                "characters are not in the classifier's vocabulary": n_unknown(
                    flat, vocabulary
                ),
            }
        )

    def _show(self, item: Item, text: str, probabilities: Tensor) -> None:
        """`probabilities` is `[1, n_labels]`, or `[length, n_labels]` for characters or words."""
        if self.saved.kind == NUMBER:
            self._show_number(item, text, float(probabilities))
            return
        of_tokens = self.saved.kind in OF_TOKENS
        labelled = [
            {"text": piece, "labels": self._best(each)}
            for piece, each in self._pieces(text, probabilities)
        ]
        if not isinstance(item, Line):
            sys.stdout.write(item.with_values(self._values(labelled)))
            return
        if self.in_json:
            print(
                as_json(
                    {"text": text, "pieces": labelled} if of_tokens else labelled[0]
                )
            )
            return

        if self.saved.kind == WORDS and not self.top:
            print(in_one_line(tags_of(labelled)))
            return

        for piece in labelled:
            shown = [
                f"{in_one_line(each['label'])} {each['probability']:.1%}"
                for each in piece["labels"]
            ]
            start = f"{piece['text']!r}  " if of_tokens else ""
            print(start + "  ".join(shown))

    def _pieces(self, text: str, probabilities: Tensor) -> list[tuple[str, Tensor]]:
        """The parts of a text that have labels, with their probabilities `[n_labels]`."""
        if self.saved.kind == CHARACTER:
            return pieces_of(text, probabilities)
        parts = text.split() if self.saved.kind == WORDS else [text]
        return list(zip(parts, probabilities, strict=True))

    def _show_number(self, item: Item, text: str, number: float) -> None:
        shown = float(f"{number:.6g}")
        if not isinstance(item, Line):
            sys.stdout.write(item.with_values({"prediction": shown}))
        else:
            print(as_json({"text": text, "number": shown}) if self.in_json else shown)

    def _values(self, labelled: list[dict[str, Any]]) -> dict[str, Any]:
        """What is added to a row with these pieces."""
        if self.saved.kind == CHARACTER:
            pieces = [{"text": each["text"]} | each["labels"][0] for each in labelled]
            return {"prediction": pieces}
        if self.saved.kind == WORDS:
            return {"prediction": tags_of(labelled)}
        if self.saved.kind == LABELS:
            names = [each["label"] for each in labelled[0]["labels"]]
            return {"prediction": BETWEEN_LABELS.join(names)}
        best = labelled[0]["labels"][0]
        return {
            "prediction": best["label"],
            "probability": round(best["probability"], 4),
        }

    def _best(self, probabilities: Tensor) -> list[dict[str, Any]]:
        labels = self.saved.labels
        n = min(self.top or 1, len(labels))
        if self.saved.kind == LABELS and not self.top:
            n = int((probabilities > 0.5).sum())
        best = probabilities.topk(n).indices.tolist()
        return [
            {"label": labels[i], "probability": float(probabilities[i])} for i in best
        ]


def tags_of(words: Sequence[dict[str, Any]]) -> str:
    """The most probable tag of each word, with a space between two."""
    return " ".join(word["labels"][0]["label"] for word in words)


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
