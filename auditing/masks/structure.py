"""How selected positions depend on each other: single tokens, spans or words, and rates that vary by window."""

from dataclasses import dataclass

import numpy as np

from auditing.masks.draws import Draws
from auditing.statistics import Share, mean_of, share_of

FAR = range(30, 41)  # lags at which neither words nor spans reach
LAGS = range(1, 41)


@dataclass(frozen=True)
class Structure:
    """The statistics of the selected positions."""

    rate: Share  # selected among ordinary tokens
    after: np.ndarray  # [40] P(selected | the position `lag` before is selected) for lags from 1
    excess: Share  # of the first lag over far lags, in the share of pairs that are both selected
    mean_run: float
    runs: np.ndarray  # [longest] the number of runs of selected positions by length, from 1
    mean_count: float  # labels per window
    count_variance: float
    binomial_variance: float  # of as many independent positions
    whole_words: Share | None  # words of several tokens that are selected as a whole, among those with any selected
    varies: bool  # whether every window has a rate of its own

    @property
    def is_clustered(self) -> bool:
        """Whether neighbors are selected together."""
        return self.excess.value > 0 and self.excess.differs(0.0)

    @property
    def unit(self) -> str:
        """token, span or word."""
        if self.whole_words is not None and self.whole_words.value > 0.5:
            return "word"
        return "span" if self.is_clustered else "token"

    @property
    def is_fixed(self) -> bool:
        """Whether every window has the same number of labels."""
        return self.count_variance == 0


def structure_of(draws: Draws) -> Structure:
    """Measure the structure of some draws."""
    selected, eligible = draws.selected, draws.eligible
    rate = share_of(draws.per_unit(selected), draws.per_unit(eligible))
    both, pairs = zip(*(pair_counts(draws, lag) for lag in LAGS), strict=True)
    after = np.array([float(b.sum() / max(1, f.sum())) for b, f in zip(both, first_counts(draws), strict=True)])
    totals = np.array([p.sum() for p in pairs])
    pair_shares = np.stack([b / np.maximum(1, p) for b, p in zip(both, pairs, strict=True)])  # [lag, unit]
    far = pair_shares[[lag - 1 for lag in FAR]].mean(0)
    has_pairs = totals.min() > 0
    excess = mean_of(pair_shares[0] - far) if has_pairs else Share(0.0, np.inf, len(far))
    counts, n_eligible = draws.per_window(selected), draws.per_window(eligible)
    runs = run_lengths(selected)
    independent = float((n_eligible * rate.value * (1 - rate.value)).mean())
    variance = float(counts.var())
    together = float(far.mean() / rate.value**2) if rate.value > 0 and has_pairs else 1.0
    return Structure(
        rate,
        after,
        excess,
        float((np.arange(1, len(runs) + 1) * runs).sum() / max(1, runs.sum())),
        runs,
        float(counts.mean()),
        variance,
        independent,
        whole_word_share(draws),
        variance > 3 * independent and together > 1.2,
    )


def pair_counts(draws: Draws, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Per unit, the pairs of ordinary tokens `lag` apart that are both selected, and all such pairs."""
    selected, eligible = draws.selected, draws.eligible
    both = selected[..., :-lag] & selected[..., lag:]
    return draws.per_unit(both), draws.per_unit(eligible[..., :-lag] & eligible[..., lag:])


def first_counts(draws: Draws) -> list[np.ndarray]:
    """Per lag and unit, the selected positions with an ordinary token `lag` later."""
    return [draws.per_unit(draws.selected[..., :-lag] & draws.eligible[..., lag:]) for lag in LAGS]


def run_lengths(selected: np.ndarray) -> np.ndarray:
    """How many runs of selected positions have each length, from 1."""
    padded = np.pad(selected.reshape(-1, selected.shape[-1]), ((0, 0), (1, 1))).astype(np.int8)
    steps = np.diff(padded, axis=1)
    begins, ends = np.argwhere(steps == 1)[:, 1], np.argwhere(steps == -1)[:, 1]
    return np.bincount(ends - begins, minlength=2)[1:]


def word_counts(draws: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """For every word of several tokens: its unit, its tokens, and how many of them are selected. None without words."""
    if draws.words is None or not (draws.words >= 0).any():
        return None
    n_units, batch, width = draws.words.shape
    window = np.arange(n_units * batch).reshape(n_units, batch, 1)
    where = (draws.words >= 0) & draws.eligible
    numbers = (window * width + draws.words)[where]
    sizes = np.bincount(numbers, minlength=n_units * batch * width)
    chosen = np.bincount(numbers, weights=draws.selected[where], minlength=len(sizes)).astype(np.int64)
    several = np.flatnonzero(sizes > 1)
    return several // (batch * width), sizes[several], chosen[several]


def whole_word_share(draws: Draws) -> Share | None:
    """Among the words of several tokens with any token selected, the share that is selected as a whole."""
    counted = word_counts(draws)
    if counted is None:
        return None
    unit, sizes, chosen = counted
    n_units = len(draws.originals)
    any_selected = np.bincount(unit[chosen > 0], minlength=n_units)
    whole = np.bincount(unit[(chosen > 0) & (chosen == sizes)], minlength=n_units)
    return share_of(whole, any_selected) if any_selected.sum() else None
