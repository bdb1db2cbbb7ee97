"""Masking strategies: what is hidden together, and how often.

A strategy is a function from a text to a `Segmenter` (see `data.masking.segmenters`), registered with `@strategy` under its own name:
that name is what `masking.strategy` takes. All of them spend the same budget of characters.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import torch

from data.masking.adaptive import AdaptiveUnits
from data.masking.segmenters import Characters, CorpusUnits, Segmenter, Spans
from data.masking.surprise import surprise
from data.masking.words import FUNCTION_WORDS, Words

STRATEGIES: dict[str, Callable[[str], Segmenter]] = {}
Extents = Iterable[tuple[int, int]]  # begin and end of each, in characters

NAME_WEIGHT = 3.0  # `entity`: a name is this much likelier to be drawn than another word
CONTENT_WEIGHT = 2.0  # `syntax`: and a phrase of content words than a function word
FREQUENCY_POWER = -0.5  # `frequency`: towards rare words; above 0 it would be towards common ones
PMI_SHARE, PMI_LONGEST, PMI_MIN_COUNT = 0.1, 4, 5  # `pmi`: the share of the vocabulary's size that becomes n-grams


def strategy(function: Callable[[str], Segmenter]) -> Callable[[str], Segmenter]:
    """Register a strategy under its function's name."""
    STRATEGIES[function.__name__] = function
    return function


@strategy
def random(text: str) -> Segmenter:
    """Single characters, all alike (BERT, Devlin et al. 2018): w = 1."""
    return Characters()


@strategy
def whole_word(text: str) -> Segmenter:
    """Whole words (BERT's later release, 2019; Cui et al. 2019): w = 1 for each word; what stands between words is
    a unit a character."""
    return Words(text).units()


@strategy
def span(text: str) -> Segmenter:
    """Spans of words (SpanBERT, Joshi et al. 2020): lengths geometric with p = 0.2, at most 10, w = 1."""
    return Spans(Words(text).units(spaces_join=True))


@strategy
def span_characters(text: str) -> Segmenter:
    """Spans of characters, lengths as in `span`: w = 1."""
    return Spans(Characters())


@strategy
def entity(text: str) -> Segmenter:
    """Names, whole (ERNIE, Sun et al. 2019): w = 3 for a name, 1 for any other word. Names are found in the text
    itself by `find_names`; any function from a text to extents can be given to `entities` in its place."""
    return entities(text, find_names)


@strategy
def frequency(text: str) -> Segmenter:
    """Words, and the characters between them, by their frequency: w = count^-0.5, so that rare ones are drawn more
    often."""
    words = Words(text)
    return words.units(words.counts() ** FREQUENCY_POWER, between=words.character_counts() ** FREQUENCY_POWER)


@strategy
def contextual(text: str) -> Segmenter:
    """Words by how surprising they are in their context: w = the sum of -log p(character | two neighbours on each
    side) over the word, or of the character between words, by counting, leaving out the occurrence itself."""
    words = Words(text)
    surprises = surprise(text)
    return words.units(words.sums(surprises), between=surprises)


@strategy
def pmi(text: str) -> Segmenter:
    """N-grams of words that belong together, whole (PMI-Masking, Levine et al. 2021): those whose pointwise mutual
    information, min over all ways to cut the n-gram in parts of log p(n-gram) / prod p(part), is highest. w = 1."""
    words = Words(text)
    return words.units(joined=collocations(words.tokens))


@strategy
def semantic(text: str) -> Segmenter:
    """Words by how much they tell: w = tf-idf of the word in its speech (Sparck Jones 1972), where a speech ends with
    an empty line: tf = its share of the speech's words, idf = log(speeches / speeches with the word). What stands
    between words tells least: it has the weight of the least telling word."""
    words = Words(text)
    weights = tf_idf(words)
    return words.units(weights, between=np.full(len(text), weights.min(initial=1.0)))


@strategy
def syntax(text: str) -> Segmenter:
    """Phrases: runs of content words between function words and punctuation, at most four, whole; w = 2 for these and 1
    for a function word. A rule of thumb: it knows neither parts of speech nor where one phrase ends and the next
    begins without a function word between them, and its function words are English."""
    words = Words(text)
    content = np.array([token.lower() not in FUNCTION_WORDS for token in words.tokens], dtype=bool)
    joined = words.runs(content, longest=4)
    return words.units(np.where(content, CONTENT_WEIGHT, 1.0), joined=joined)


@strategy
def adaptive(text: str) -> Segmenter:
    """Words by how hard the model finds them at the moment: w = a running mean of its own loss on the word (in the
    spirit of prioritised sampling, Schaul et al. 2016). What stands between words is a type a character."""
    words = Words(text)
    units = words.units()
    types = unit_types(words, units)
    return AdaptiveUnits(units, types, torch.ones(int(types.max()) + 1 if len(types) else 1))


def entities(text: str, find: Callable[[str], Extents]) -> CorpusUnits:
    """Units with the extents that `find` gives as wholes. Where extents overlap, the first one holds."""
    words = Words(text)
    apart: list[tuple[int, int]] = []
    for begin, end in sorted(find(text)):
        if not apart or begin >= apart[-1][1]:
            apart.append((begin, end))
    return words.units(extents=apart, extent_weight=NAME_WEIGHT)


def find_names(text: str) -> Extents:
    """Names in a text: the speakers of a play (a line that ends in a colon), wherever they are named, and words with a
    capital that do not begin a sentence or a line, with the capitalised words that follow them."""
    speakers = {line.strip() for line in re.findall(r"^([A-Z][^\n:.!?]{0,40}):$", text, re.MULTILINE)}
    inside = re.compile(r"(?<=[a-z,;] )[A-Z][\w']+(?: [A-Z][\w']+)*")
    known = {match[0] for match in inside.finditer(text)} | speakers | {name.capitalize() for name in speakers}
    known -= {word.capitalize() for word in FUNCTION_WORDS}
    if not known:
        return []
    # Longest first: LADY MACBETH before LADY.
    pattern = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    return [match.span() for match in re.finditer(rf"(?<!\w)(?:{pattern})(?!\w)", text)]


def collocations(tokens: list[str]) -> set[tuple[str, ...]]:
    """The n-grams, 2 to PMI_LONGEST words, with the highest pointwise mutual information."""
    lower = [token.lower() for token in tokens]
    counts = {n: Counter(zip(*(lower[i:] for i in range(n)), strict=False)) for n in range(1, PMI_LONGEST + 1)}
    total = max(1, len(lower))
    log_p = {
        gram: np.log(count / total)
        for n in counts
        for gram, count in counts[n].items()
        if count >= PMI_MIN_COUNT or n == 1
    }
    best_cut: dict[tuple[str, ...], float] = {}  # max over cuts of the sum of log p of the parts, whole allowed

    def parts(gram: tuple[str, ...]) -> float:
        if len(gram) == 1:
            return log_p[gram]
        if gram not in best_cut:
            cuts = (parts(gram[:i]) + parts(gram[i:]) for i in range(1, len(gram)))
            best_cut[gram] = max(log_p.get(gram, -np.inf), *cuts)
        return best_cut[gram]

    scored: list[tuple[float, tuple[str, ...]]] = []
    for n in range(2, PMI_LONGEST + 1):
        for gram, count in counts[n].items():
            if count >= PMI_MIN_COUNT:
                independent = max(parts(gram[:i]) + parts(gram[i:]) for i in range(1, n))
                scored.append((log_p[gram] - independent, gram))
    scored.sort(reverse=True)
    return {gram for score, gram in scored[: max(1, int(PMI_SHARE * len(counts[1])))] if score > 0}


def tf_idf(words: Words) -> np.ndarray:
    """The tf-idf of every word in its speech, `[n_words]`."""
    speech_of = np.searchsorted(np.array([m.start() for m in re.finditer(r"\n\s*\n", words.text)]), words.begins)
    n_speeches = int(speech_of.max()) + 1 if len(speech_of) else 1
    pairs, pair_of, pair_counts = np.unique(
        speech_of * len(words.vocabulary) + words.types, return_inverse=True, return_counts=True
    )
    speeches_with = np.bincount(pairs % len(words.vocabulary), minlength=len(words.vocabulary))
    speech_lengths = np.bincount(speech_of, minlength=n_speeches)
    tf = pair_counts[pair_of] / speech_lengths[speech_of]
    # One is added: a word of every speech still tells a little, and can be drawn.
    idf = np.log((1 + n_speeches) / speeches_with[words.types])
    return tf * idf


def unit_types(words: Words, units: CorpusUnits) -> torch.Tensor:
    """A type for each unit `[n_units]`: the word, or the character that stands alone."""
    begins = np.flatnonzero(np.diff(units.unit_of.numpy(), prepend=-1))
    names = [words.text[begin] for begin in begins.tolist()]
    place_of = dict(zip(begins.tolist(), range(len(begins)), strict=True))
    for token, begin in zip(words.tokens, words.begins.tolist(), strict=True):
        names[place_of[begin]] = token.lower()
    return torch.from_numpy(np.unique(names, return_inverse=True)[1].astype(np.int32))


def on_device(cut: Segmenter, device: torch.device) -> Segmenter:
    """The same cut with its tensors on a device."""
    if isinstance(cut, CorpusUnits | AdaptiveUnits):
        return cut.to(device)
    if isinstance(cut, Spans):
        return Spans(on_device(cut.base, device), cut.p, cut.longest)
    return cut
