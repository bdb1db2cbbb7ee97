"""Statistics of a text that strategies take their weights and units from: surprise, tf-idf, and mutual information."""

import math
import re
from collections import Counter
from collections.abc import Collection
from functools import cache

import numpy as np
import numpy.typing as npt

from data.masking.words import WORD

CONTEXTS = ((1, 0), (1, 1), (2, 1), (2, 2))  # characters to the left and right, smaller contexts first
PMI_SHARE, PMI_LONGEST, PMI_MIN_COUNT = 0.1, 4, 5  # the number of n-grams as a share of the vocabulary's size


def surprise(text: str) -> npt.NDArray[np.float64]:
    """-log p(character | two neighbors on each side) in nats, `[n_chars]`.

    Uses Witten-Bell interpolation as `data.counting` does, on counts over the text itself without the occurrence that
    is judged: each character is as surprising as if it had not been seen.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    alphabet, ids = np.unique(codes, return_inverse=True)
    n, n_chars = len(ids), max(1, len(alphabet))
    counts = np.bincount(ids, minlength=n_chars)
    probs = (counts[ids] - 1 + 0.5) / max(1.0, n - 1 + 0.5 * n_chars)
    padded = np.concatenate([np.full(2, n_chars), ids, np.full(2, n_chars)])
    for left, right in CONTEXTS:
        context = np.zeros(n, dtype=np.int64)
        for shift in (*range(-left, 0), *range(1, right + 1)):
            # Renumbering after every digit keeps the numbers small for any alphabet.
            context = np.unique(context * (n_chars + 1) + padded[2 + shift : 2 + shift + n], return_inverse=True)[1]
        totals = np.bincount(context)
        pairs, pair_of, pair_counts = np.unique(context * n_chars + ids, return_inverse=True, return_counts=True)
        types = np.bincount(pairs // n_chars, minlength=len(totals))
        here, total, kinds = pair_counts[pair_of], totals[context], types[context]
        kinds = kinds - (here == 1)  # without this occurrence, its pair may be unknown
        seen = total - 1 + kinds > 0
        probs = np.where(seen, (here - 1 + kinds * probs) / np.maximum(1, total - 1 + kinds), probs)
    return -np.log(probs)


def tf_idf(text: str) -> list[float]:
    """The tf-idf of every word of a text in its speech (Sparck Jones 1972), in order. An empty line ends a speech.

    tf is the word's share of the words of the speech, idf is log((1 + speeches) / speeches with the word).
    """
    parts = (WORD.findall(part) for part in re.split(r"\n\s*\n", text))
    speeches = [[word.lower() for word in part] for part in parts if part]
    speeches_with = Counter(word for speech in speeches for word in set(speech))
    # The 1 keeps the weight of a word that is in every speech above 0.
    idf = {word: math.log((1 + len(speeches)) / n) for word, n in speeches_with.items()}
    weights = []
    for speech in speeches:
        counts = Counter(speech)
        weights += [counts[word] / len(speech) * idf[word] for word in speech]
    return weights


def collocations(words: list[str]) -> set[tuple[str, ...]]:
    """The n-grams of 2 to PMI_LONGEST words with the highest pointwise mutual information (Levine et al. 2021).

    The PMI of an n-gram is the minimum, over all ways to cut it in parts, of log p(n-gram) - sum of log p(part).
    """
    counts = {n: Counter(zip(*(words[i:] for i in range(n)), strict=False)) for n in range(1, PMI_LONGEST + 1)}
    frequent = {gram: count for n in counts for gram, count in counts[n].items() if n == 1 or count >= PMI_MIN_COUNT}
    log_p = {gram: math.log(count / len(words)) for gram, count in frequent.items()}

    def cut(gram: tuple[str, ...]) -> float:
        """The highest sum of log p over all ways to cut an n-gram in at least two parts."""
        return max((best(gram[:i]) + best(gram[i:]) for i in range(1, len(gram))), default=-math.inf)

    @cache
    def best(gram: tuple[str, ...]) -> float:
        """The highest sum of log p over all ways to cut an n-gram, no cut included."""
        return max(log_p.get(gram, -math.inf), cut(gram))

    scored = sorted(((log_p[gram] - cut(gram), gram) for gram in frequent if len(gram) > 1), reverse=True)
    return {gram for score, gram in scored[: max(1, int(PMI_SHARE * len(counts[1])))] if score > 0}


def joined(pieces: list[str], grams: Collection[tuple[str, ...]]) -> list[str]:
    """The pieces of a text, with the words of each n-gram in one piece: longest first, from left to right."""
    pieces = pieces.copy()
    places = [i for i, piece in enumerate(pieces) if WORD.match(piece)]
    words = [pieces[i].lower() for i in places]
    word = 0
    while word < len(words):
        longest = min(PMI_LONGEST, len(words) - word)
        n = next((n for n in range(longest, 1, -1) if tuple(words[word : word + n]) in grams), 1)
        first, end = places[word], places[word + n - 1] + 1
        pieces[first:end] = ["".join(pieces[first:end]), *[""] * (end - first - 1)]
        word += n
    return [piece for piece in pieces if piece]
