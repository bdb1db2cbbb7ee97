"""Checks what [MASK] is, and which tokens replace the originals at random."""

from collections.abc import Iterator

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.draws import Draws
from auditing.masks.measure import Measured
from auditing.masks.tokens import SPECIAL_HINT
from auditing.statistics import LEVEL, chi_square_p

FEWEST = 200  # fewer random tokens are not tested
PER_BIN = 50.0  # expected count of a bin of the chi-square test
HARMLESS = 0.01  # the share of special tokens among random ones of BERT's own code is far below


def check_mask(measured: Measured) -> Iterator[Finding]:
    """Whether the id that replaces most tokens is the mask token, and no ordinary token's."""
    used, tokens, stated = measured.reading.mask, measured.main.tokens, measured.facts.tokens.mask
    count, total = int(measured.main.masked.sum()), int(measured.main.selected.sum())
    if used is None or not count:
        return
    name, evidence, found = "mask token", f"{count:,} of {total:,}", f"id {used}"
    if used == tokens.unknown:
        cause = "The mask token is not in the vocabulary, so it became the unknown token: check its spelling."
        yield Finding(name, f"{found}, unknown", "a special id", evidence, Verdict.BROKEN, "unknown-as-mask", cause)
    elif used < 0 or used >= tokens.n_tokens:
        return  # reported as out of the vocabulary
    elif used in tokens.ordinary:
        expected = f"id {stated}" if stated is not None else "a special id"
        cause = f"Id {used} is also an ordinary token: the model cannot tell a mask from that token."
        yield Finding(name, found, expected, evidence, Verdict.BROKEN, "mask-is-ordinary", cause)
    else:
        yield Finding(name, found, f"id {stated}" if stated is not None else "any special id", evidence)


def check_random(measured: Measured) -> Iterator[Finding]:
    """The distribution of random tokens: special tokens among them, constants, ranges, and its uniformity."""
    draws = measured.main
    ids = draws.inputs[draws.randomized]
    ids = ids[(ids >= 0) & (ids < draws.tokens.n_tokens)]
    if len(ids) < FEWEST:
        return
    name, counts = "random tokens", np.bincount(ids, minlength=draws.tokens.n_tokens)
    top = int(counts.argmax())
    if counts[top] > 0.9 * len(ids) or per_call_constant(draws):
        what = f"id {top}" if counts[top] > 0.9 * len(ids) else "one id per call"
        cause = "One id is drawn once and used for all positions, or the draw is mapped to the unknown token."
        evidence = f"{counts[top]:,} of {len(ids):,}"
        yield Finding(name, what, "ordinary ids", evidence, Verdict.BROKEN, "random-constant", cause)
        return
    yield from check_special_drawn(draws, counts)
    yield from check_range(draws, counts)


def per_call_constant(draws: Draws) -> bool:
    """Whether most calls, or windows, use a single random token each."""
    single = several = 0
    for inputs, where in zip(draws.inputs, draws.randomized, strict=True):
        drawn = inputs[where]
        if len(drawn) >= 5:
            several += 1
            single += len(np.unique(drawn)) == 1
    return several >= 5 and single > several / 2


def check_special_drawn(draws: Draws, counts: np.ndarray) -> Iterator[Finding]:
    """Special tokens among the random ones."""
    ids = [id for id in draws.tokens.special if id != draws.tokens.mask]
    count, total = int(counts[ids].sum()), int(counts.sum())
    found, evidence = f"{count / total:.2%} special" if count else "none", f"{count:,} of {total:,}"
    if not count:
        yield Finding("special among random", found, "none", evidence)
        return
    cause = "Random tokens are drawn from the whole vocabulary: draw from the ordinary ids only."
    verdict = Verdict.BROKEN if count > HARMLESS * total else Verdict.DIFFERS
    recipes = () if verdict == Verdict.BROKEN else ("BERT's own code, with 5 special of 30,522 tokens",)
    yield Finding("special among random", found, "none", evidence, verdict, "special-as-replacement", cause, recipes)


def check_range(draws: Draws, counts: np.ndarray) -> Iterator[Finding]:
    """Whether all ordinary ids are drawn, and equally often. One random token per window counts, as they may depend."""
    ordinary = draws.tokens.ordinary
    drawn = np.flatnonzero(counts[ordinary])
    low, high, total, n = int(drawn[0]), int(drawn[-1]), int(counts[ordinary].sum()), len(ordinary)
    missing = max(low, n - 1 - high)
    chance = (1 - missing / n) ** total  # that uniform draws miss so many ids at one end
    never = np.flatnonzero(counts[ordinary] == 0)
    expected_count = total / n
    name, expected = "random tokens", f"all {n:,} ordinary ids"
    found = f"ids {ordinary[low]} to {ordinary[high]}"
    if 2 * chance < LEVEL and missing:
        side = "lowest" if low >= n - 1 - high else "highest"
        cause = f"The {missing:,} {side} ids are never drawn: the bounds of the draw are those of another vocabulary."
        evidence = f"{missing:,} of {n:,} ids never drawn"
        verdict = Verdict.BROKEN
        at_the_end = ordinary[:low] if low >= n - 1 - high else ordinary[high + 1 :]
        if len(draws.tokens.special) <= 1 and not np.isin(draws.originals[draws.selected], at_the_end).any():
            cause, verdict = f"The {missing:,} {side} ids are never drawn. {SPECIAL_HINT}", Verdict.DIFFERS
        yield Finding(name, found, expected, evidence, verdict, "replacement-range", cause)
        return
    if expected_count > 25 and len(never):
        cause = "Some ids are never drawn: random tokens come from part of the vocabulary, or from the text."
        evidence = f"{len(never):,} of {n:,} ids never drawn"
        yield Finding(name, f"{n - len(never):,} ids", expected, evidence, Verdict.DIFFERS, "replacement-range", cause)
        return
    p = uniformity(draws)
    if p is not None and p < LEVEL:
        cause = "Not uniform: right for draws by the tokens' frequencies."
        yield Finding(name, found, "equally often", f"p = {p:.1e}", Verdict.DIFFERS, "not-uniform", cause)
    else:
        yield Finding(name, found, expected, "too few to test" if p is None else f"p = {p:.2f}")


def uniformity(draws: Draws) -> float | None:
    """P-value of the chi-square test on the first random ordinary token of every window; None if there are too few."""
    width = draws.inputs.shape[2]
    is_ordinary = np.isin(draws.inputs, draws.tokens.ordinary)
    where = (draws.randomized & is_ordinary).reshape(-1, width)
    rows = np.flatnonzero(where.any(1))
    ids = draws.inputs.reshape(-1, width)[rows, where[rows].argmax(1)]
    ordinary = draws.tokens.ordinary
    n_bins = min(len(ordinary), int(len(ids) / PER_BIN))
    if n_bins < 2:
        return None
    bin_of = np.arange(len(ordinary)) * n_bins // len(ordinary)
    expected = np.bincount(bin_of) / len(ordinary) * len(ids)
    return chi_square_p(np.bincount(bin_of[np.searchsorted(ordinary, ids)], minlength=n_bins), expected)
