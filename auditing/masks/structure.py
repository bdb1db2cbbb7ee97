"""What a target selects in numbers: its rate, its shares, its units, and how many labels its windows have."""

from dataclasses import dataclass

import numpy as np

from auditing.masks.battery import Pair
from auditing.masks.recipes import Shares
from auditing.masks.table import Table
from auditing.statistics import Share, share_of

LAG = 0  # index of the closest neighbors


@dataclass(frozen=True)
class Structure:
    """The statistics of the selected positions."""

    rate: Share  # selected among ordinary tokens
    parts: tuple[Share, Share, Share]  # of [MASK], random and unchanged among the selected
    mean_run: float
    counts: np.ndarray  # [n_windows] labels per window
    independent_variance: float  # of as many independent positions
    whole_words: float | None  # the share of words of several tokens that are selected as a whole, if they are at all
    is_clustered: bool  # whether neighbors are selected together
    varies: bool  # whether each window has its own rate

    @property
    def shares(self) -> Shares:
        masked, random, kept = (part.value for part in self.parts)
        return masked, random, kept

    @property
    def unit(self) -> str:
        """token, span or word."""
        if self.whole_words is not None and self.whole_words > 0.5:
            return "word"
        return "span" if self.is_clustered else "token"

    @property
    def is_fixed(self) -> bool:
        """Whether every window has the same number of labels."""
        return bool(self.counts.var() < 1e-9)


def structure_of(table: Table, pairs: list[Pair]) -> Structure:
    """The structure of the main text, given what its battery found."""
    selected, eligible = table.selected, table.eligible
    rate = share_of(table.per_unit(selected), table.per_unit(eligible))
    totals = table.per_unit(selected)
    masked, random, kept = (share_of(table.per_unit(part), totals) for part in (table.masked, table.randomized, table.kept))
    counts, sizes = table.per_window(selected), table.per_window(eligible)
    independent = float((sizes * rate.value * (1 - rate.value)).mean())
    found = {pair.circumstance: pair.found for pair in pairs if pair.outcome == "selected" and pair.is_found}
    near, window = found.get("neighbors"), found.get("window")
    runs = selected & ~np.pad(selected, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    words = word_counts(table)
    whole = None
    if words is not None and (words[1] > 0).any():
        whole = float((words[1] == words[0])[words[1] > 0].mean())
    return Structure(
        rate,
        (masked, random, kept),
        float(selected.sum() / max(1, runs.sum())),
        counts,
        independent,
        whole,
        near is not None and near.shares[LAG] > near.mean,
        window is not None and window.shares[0] > 0 and counts.var() > 3 * independent,
    )


def word_counts(table: Table) -> tuple[np.ndarray, np.ndarray] | None:
    """For every word of several tokens: its tokens, and how many of them are selected. None if words are unknown."""
    if table.words is None or not (table.words >= 0).any():
        return None
    width = int(table.words.max()) + 1
    window = np.arange(table.words.shape[0] * table.words.shape[1]).reshape(*table.words.shape[:2], 1)
    where = (table.words >= 0) & table.eligible
    numbers = (window * width + table.words)[where]
    sizes = np.bincount(numbers)
    chosen = np.bincount(numbers, weights=table.selected[where]).astype(np.int64)
    return sizes[sizes > 1], chosen[sizes > 1]
