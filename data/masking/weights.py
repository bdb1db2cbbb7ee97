"""Statistics of a text that strategies take their weights and units from: surprise, tf-idf, and
mutual information."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from data.masking.units import RARELY
from data.masking.words import WORD, cut, words_of
from data.references.counting import Hashes, Ints, context_hashes, looked_up, mixed

# characters to the left and right, smaller contexts first
CONTEXTS = ((1, 0), (1, 1), (2, 1), (2, 2))
# the number of n-grams as a share of the vocabulary's size
PMI_SHARE, PMI_LONGEST, PMI_MIN_COUNT = 0.1, 4, 5


class Surprise:
    """-log p(character | two neighbors on each side), by Witten-Bell interpolation as in
    `data.references.counting`."""

    def __init__(self, text: str):
        """Count the characters of `text` in their contexts."""
        self.text = text
        codes = _codes(text)
        self.frequencies = np.unique(codes, return_counts=True)
        self.tables = []
        for context, pair in _contexts(codes):
            contexts, context_of, totals = np.unique(
                context, return_inverse=True, return_counts=True
            )
            pairs, first, counts = np.unique(
                pair, return_index=True, return_counts=True
            )
            types = np.bincount(context_of[first], minlength=len(contexts))
            self.tables.append((contexts, totals, types, pairs, counts))

    def __call__(self, text: str) -> npt.NDArray[np.float64]:
        """The surprise of each character in nats, `[n_chars]`; in the text that was counted,
        without the occurrence."""
        own = 1 if text == self.text else 0
        codes = _codes(text)
        n = len(self.text) - own
        counts = looked_up(codes, *self.frequencies)
        probs = (counts - own + 0.5) / max(
            1.0, n + 0.5 * max(1, len(self.frequencies[0]))
        )
        for (context, pair), table in zip(_contexts(codes), self.tables, strict=True):
            contexts, totals, types, pairs, pair_counts = table
            here = looked_up(pair, pairs, pair_counts)
            total, kinds = (
                looked_up(context, contexts, totals),
                looked_up(context, contexts, types),
            )
            # without this occurrence, its pair may be unknown
            kinds = kinds - own * (here == 1)
            seen = total - own + kinds > 0
            probs = np.where(
                seen,
                (here - own + kinds * probs) / np.maximum(1, total - own + kinds),
                probs,
            )
        return -np.log(probs)

    def rule(self, text: str) -> tuple[list[str], list[float]]:
        """The words of a text and the characters between them, weighted by the surprise of their
        characters."""
        pieces = cut(text)
        begins = np.cumsum([0, *map(len, pieces[:-1])])
        return pieces, np.add.reduceat(self(text), begins).clip(min=RARELY).tolist()


def _codes(text: str) -> Ints:
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.int64)


def _contexts(codes: Ints) -> Iterator[tuple[Hashes, Hashes]]:
    """For each size: hashes of the context of each character, and of the context and the character."""
    padded = np.pad(codes + 1, 2)  # 0 stands for a place outside the text
    for left, right in CONTEXTS:
        context = context_hashes(padded, np.arange(len(codes)) + 2, left, right)
        yield context, mixed(context, codes)


class TfIdf:
    """The tf-idf of words in their speeches (Sparck Jones 1972). An empty line ends a speech.

    tf is the word's share of the words of the speech, idf is log((1 + speeches) / speeches with the
    word).
    """

    def __init__(self, text: str):
        """Count in how many speeches of `text` each word occurs."""
        speeches = _speeches(text)
        self.n_speeches = len(speeches)
        self.speeches_with = Counter(
            word for speech in speeches for word in set(speech)
        )
        self.least = min(self(text), default=1.0)

    def __call__(self, text: str) -> list[float]:
        """The tf-idf of every word of a text, in order."""
        weights = []
        for speech in _speeches(text):
            counts = Counter(speech)
            # The 1 keeps the weight of a word that is in every speech above 0.
            idf = {
                word: math.log((1 + self.n_speeches) / max(1, self.speeches_with[word]))
                for word in counts
            }
            weights += [counts[word] / len(speech) * idf[word] for word in speech]
        return weights

    def rule(self, text: str) -> tuple[list[str], list[float]]:
        """The words of a text with their tf-idf, and the characters between them with the least one
        of all words."""
        pieces, of_words = cut(text), iter(self(text))
        return pieces, [
            next(of_words) if WORD.match(piece) else self.least for piece in pieces
        ]


def _speeches(text: str) -> list[list[str]]:
    parts = (words_of(part) for part in re.split(r"\n\s*\n", text))
    return [[word.lower() for word in part] for part in parts if part]


def collocations(words: list[str]) -> set[tuple[str, ...]]:
    """The n-grams of 2 to PMI_LONGEST words with the highest pointwise mutual information (Levine
    et al. 2021).

    The PMI of an n-gram is the minimum, over all ways to cut it in parts, of log p(n-gram) - sum of
    log p(part).
    """
    counts = {
        n: Counter(zip(*(words[i:] for i in range(n)), strict=False))
        for n in range(1, PMI_LONGEST + 1)
    }
    frequent = {
        gram: count
        for n in counts
        for gram, count in counts[n].items()
        if n == 1 or count >= PMI_MIN_COUNT
    }
    log_p = {gram: math.log(count / len(words)) for gram, count in frequent.items()}

    def best_cut(gram: tuple[str, ...]) -> float:
        """The highest sum of log p over all ways to cut an n-gram in at least two parts."""
        return max(
            (best(gram[:i]) + best(gram[i:]) for i in range(1, len(gram))),
            default=-math.inf,
        )

    @cache
    def best(gram: tuple[str, ...]) -> float:
        """The highest sum of log p over all ways to cut an n-gram, no cut included."""
        return max(log_p.get(gram, -math.inf), best_cut(gram))

    scored = sorted(
        ((log_p[gram] - best_cut(gram), gram) for gram in frequent if len(gram) > 1),
        reverse=True,
    )
    return {
        gram
        for score, gram in scored[: max(1, int(PMI_SHARE * len(counts[1])))]
        if score > 0
    }


def joined(pieces: list[str], grams: Collection[tuple[str, ...]]) -> list[str]:
    """The pieces of a text, with the words of each n-gram in one piece: longest first, from left to
    right."""
    pieces = pieces.copy()
    places = [i for i, piece in enumerate(pieces) if WORD.match(piece)]
    words = [pieces[i].lower() for i in places]
    word = 0
    while word < len(words):
        longest = min(PMI_LONGEST, len(words) - word)
        n = next(
            (
                n
                for n in range(longest, 1, -1)
                if tuple(words[word : word + n]) in grams
            ),
            1,
        )
        first, end = places[word], places[word + n - 1] + 1
        pieces[first:end] = ["".join(pieces[first:end]), *[""] * (end - first - 1)]
        word += n
    return [piece for piece in pieces if piece]
