"""Checks of whole words, where a tokenizer says which tokens form a word."""

from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.measure import Measured
from auditing.masks.structure import Structure, word_counts
from auditing.statistics import share_of

MANY_WORDS = 5  # the mean run of selected tokens, in words, above which words are joined
NEARLY_ALL = 0.95  # of the words: a budget that ends inside a word leaves one in part


def check_words(measured: Measured, structure: Structure, claimed: bool) -> Iterator[Finding]:
    """Whether words are selected as a whole. `claimed`: the target or the recipe says that they are."""
    draws, whole = measured.main, structure.whole_words
    counted = word_counts(draws)
    if counted is None or whole is None:
        return
    _, sizes, chosen = counted
    total, count = int((chosen > 0).sum()), int(((chosen > 0) & (chosen == sizes)).sum())
    rate = structure.rate.value
    independent = float((rate**sizes).sum() / (1 - (1 - rate) ** sizes).sum())
    found, evidence = f"{whole.value:.1%} whole", f"{count:,} of {total:,} words"
    name, expected = "whole words", "all" if claimed else f"{independent:.1%} if independent"
    later = later_pieces(draws)
    if later is not None and later < 0.05 * rate:
        cause = "Only the first token of a word is selected: the others stay visible and give it away."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "word-part-left", cause)
    elif whole.value > 0.5 and structure.mean_run > MANY_WORDS * sizes.mean():
        found, evidence = f"runs of {structure.mean_run:.0f} tokens", f"words of {sizes.mean():.1f} tokens"
        cause = "Neighboring words are taken for one: no boundary is found, as with offsets that have no gaps."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "words-joined", cause)
    elif claimed and whole.value < 0.5:
        cause = "Words are taken for single tokens: word boundaries are found by the prefix of one tokenizer, as '##'."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "pieces-alone", cause)
    elif 0.5 < whole.value < NEARLY_ALL and parts_per_window(draws) > 1:
        cause = "Words are masked in part: what is left of a word gives the rest away."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "word-part-left", cause)
    else:
        yield Finding(name, found, expected, evidence)


def later_pieces(draws: Draws) -> float | None:
    """The selected share among tokens that continue a word; None if there are none."""
    assert draws.words is not None
    continues = np.zeros_like(draws.eligible)
    continues[..., 1:] = (draws.words[..., 1:] == draws.words[..., :-1]) & (draws.words[..., 1:] >= 0)
    continues &= draws.eligible
    value = share_of(draws.per_unit(draws.selected & continues), draws.per_unit(continues)).value
    return value if continues.any() else None


def parts_per_window(draws: Draws) -> float:
    """The mean number per window of words that are selected in part."""
    counted = word_counts(draws)
    assert counted is not None
    _, sizes, chosen = counted
    return float(((chosen > 0) & (chosen < sizes)).sum() / (draws.originals.shape[0] * draws.originals.shape[1]))
