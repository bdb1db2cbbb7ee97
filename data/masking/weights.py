"""Statistics of a text that strategies take their weights and units from: surprise, tf-idf, and mutual information."""

import re
from collections import Counter

import numpy as np

from data.masking.words import Floats, Words

CONTEXTS = ((1, 0), (1, 1), (2, 1), (2, 2))  # characters to the left and right, smaller contexts first
PMI_SHARE, PMI_LONGEST, PMI_MIN_COUNT = 0.1, 4, 5  # the number of n-grams as a share of the vocabulary's size


def surprise(text: str) -> Floats:
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


def tf_idf(words: Words) -> Floats:
    """The tf-idf of every word in its speech (Sparck Jones 1972), `[n_words]`. An empty line ends a speech.

    tf is the word's share of the words of the speech, idf is log((1 + speeches) / speeches with the word).
    """
    borders = np.array([match.start() for match in re.finditer(r"\n\s*\n", words.text)])
    speech_of = np.searchsorted(borders, words.begins)
    n_speeches, n_types = speech_of.max(initial=0) + 1, words.types.max(initial=0) + 1
    pairs, pair_of, pair_counts = np.unique(speech_of * n_types + words.types, return_inverse=True, return_counts=True)
    tf = pair_counts[pair_of] / np.bincount(speech_of, minlength=n_speeches)[speech_of]
    speeches_with = np.bincount(pairs % n_types, minlength=n_types)
    # The 1 keeps the weight of a word that is in every speech above 0.
    return tf * np.log((1 + n_speeches) / speeches_with[words.types])


def collocations(words: list[str]) -> set[tuple[str, ...]]:
    """The n-grams of 2 to PMI_LONGEST words with the highest pointwise mutual information (Levine et al. 2021).

    The PMI of an n-gram is the minimum, over all ways to cut it in parts, of log p(n-gram) - sum of log p(part).
    """
    counts = {n: Counter(zip(*(words[i:] for i in range(n)), strict=False)) for n in range(1, PMI_LONGEST + 1)}
    frequent = {gram: count for n in counts for gram, count in counts[n].items() if n == 1 or count >= PMI_MIN_COUNT}
    log_p = {gram: float(np.log(count / len(words))) for gram, count in frequent.items()}
    best: dict[tuple[str, ...], float] = {}  # the highest sum of log p over all ways to cut, no cut included

    def cut(gram: tuple[str, ...]) -> float:
        """The highest sum of log p over all ways to cut an n-gram in at least two parts."""
        return max(uncut(gram[:i]) + uncut(gram[i:]) for i in range(1, len(gram)))

    def uncut(gram: tuple[str, ...]) -> float:
        if gram not in best:
            best[gram] = max(log_p.get(gram, -np.inf), cut(gram) if len(gram) > 1 else -np.inf)
        return best[gram]

    scored = sorted(((log_p[gram] - cut(gram), gram) for gram in frequent if len(gram) > 1), reverse=True)
    return {gram for score, gram in scored[: max(1, int(PMI_SHARE * len(counts[1])))] if score > 0}
