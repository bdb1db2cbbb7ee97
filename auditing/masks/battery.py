"""The battery: tests every declared pair of an outcome and a circumstance for independence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from auditing.masks.table import Table, eighths_of, shifted
from auditing.statistics import LEVEL, Dependence, by_class, of_means, of_units

LAGS = 40  # tokens
PERIODS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)  # of calls
EFFECTS = {"selected": 0.06, "kind": 0.02, "replacement": 0.1}  # the smallest to report; all but kinds are relative
BINS = 16  # of replacements


@dataclass(frozen=True)
class Pair:
    """One tested pair. `outcome` and `circumstance` name its entry in the catalogue and in a recipe."""

    outcome: str
    circumstance: str
    what: str  # the share that is measured, in words
    along: str  # the classes of the circumstance, in words
    found: Dependence
    first: int = 0  # the number of the first class
    ordered: bool = True  # whether the classes have an order in which a trend makes sense
    effect: float | None = None  # the smallest to report; by default that of the outcome

    @property
    def key(self) -> tuple[str, str]:
        return self.outcome, self.circumstance

    @property
    def name(self) -> str:
        """The slug of a finding about the pair."""
        if self.key == ("selected", "position"):
            return "position-dependent"
        return f"{self.outcome}-by-{self.circumstance.replace(' ', '-')}"

    @property
    def is_found(self) -> bool:
        """Whether the outcome depends on the circumstance, by more than chance and by more than what matters."""
        effect = EFFECTS[self.outcome] * (1.0 if self.outcome == "kind" else abs(self.found.mean))
        return self.found.exceeds(effect if self.effect is None else self.effect)

    @property
    def z(self) -> float:
        """The largest |z|."""
        return float(np.abs(self.found.z).max(initial=0.0))

    @property
    def zeros(self) -> np.ndarray:
        """The classes in which the outcome never happens."""
        return np.flatnonzero(self.found.never) if self.found.never is not None else np.zeros(0, dtype=int)

    def text(self) -> str:
        """The dependence in plain words with numbers."""
        shares, used = self.found.shares, np.flatnonzero(np.isfinite(self.found.shares))
        low, high = used[shares[used].argmin()], used[shares[used].argmax()]
        lowest, highest = (f"{max(0.0, shares[at]):.1%}" for at in (low, high))
        if len(used) == 1:
            return f"{self.what}: {lowest}"
        if len(self.zeros) and self.found.mean > 0.01 and len(used) > 2:
            return f"{self.what}: never at {self.along} {listed(self.zeros + self.first)}"
        ends = shares[used[: max(1, len(used) // 8)]].mean(), shares[used[-max(1, len(used) // 8) :]].mean()
        if self.ordered and len(used) > 4 and abs(np.corrcoef(used, shares[used])[0, 1]) > 0.85:
            verb = "rises" if ends[1] > ends[0] else "falls"
            return f"{self.what} {verb} from {ends[0]:.1%} to {max(0.0, ends[1]):.1%} along the {self.along}s"
        return f"{self.what}: {lowest} at {self.along} {low + self.first}, {highest} at {high + self.first}"


def listed(numbers: np.ndarray) -> str:
    """The first of some numbers, in words."""
    text = ", ".join(str(number) for number in numbers[:4])
    return f"{text} and {len(numbers) - 4} more" if len(numbers) > 4 else text


class Sample:
    """Positions at which an outcome is observed, and what is expected of it there if nothing else matters: the share
    in its own window, so that rates may differ by window, or in its call."""

    def __init__(self, table: Table, outcome: str, what: str, where: np.ndarray, happens: np.ndarray):
        self.table, self.outcome, self.what, self.where, self.happens = table, outcome, what, where, happens
        self.at = np.flatnonzero(where)
        self.outcomes = happens.ravel()[self.at].astype(float)
        self.n_calls, self.n_rows, self.width = where.shape
        self.windows = self.at // self.width
        self.calls = self.windows // self.n_rows
        self.mean = float(self.outcomes.mean()) if len(self.at) else 0.0

    def expected(self, strata: np.ndarray) -> np.ndarray:
        """The outcome's share in the stratum of each position."""
        counts = np.bincount(strata)
        return (np.bincount(strata, self.outcomes) / np.maximum(1, counts))[strata]

    def by(self, circumstance: str, along: str, classes: np.ndarray, n_classes: int, first: int = 0,
           ordered: bool = True, in_window: bool = True) -> Pair:  # fmt: skip
        """Test independence of the classes of positions, `[n_calls, rows, width]` or smaller."""
        flat = np.broadcast_to(classes, self.where.shape).ravel()[self.at]
        expected = self.expected(self.windows if in_window else self.calls)
        found = by_class(self.calls, flat, self.outcomes, expected, self.n_calls, n_classes)
        return self.pair(circumstance, along, found, first, ordered)

    def pair(self, circumstance: str, along: str, found: Dependence, first: int = 0, ordered: bool = True) -> Pair:
        return Pair(self.outcome, circumstance, self.what, along, found, first, ordered)

    def by_call(self) -> Iterator[Pair]:
        """Drift, periods, and rates that vary from call to call or from window to window more than by chance."""
        parts = np.bincount(self.calls, self.outcomes, self.n_calls)
        totals = np.bincount(self.calls, minlength=self.n_calls).astype(float)
        number = np.arange(self.n_calls)
        yield self.pair("call", "eighth of the call", of_units(parts, totals, 8 * number // self.n_calls), 1)
        for period in PERIODS:
            found = of_units(parts, totals, number % period)
            yield self.pair("call", f"call, counted modulo {period}: number", found, ordered=False)
        yield self.together("window", self.windows * 3 + self.at % self.width * 3 // self.width, 3)
        yield self.together("batch", self.windows, self.n_rows)

    def together(self, circumstance: str, parts: np.ndarray, n_parts: int) -> Pair:
        """Whether the outcome has its own share in each window, or in each batch: its correlation between the thirds of
        a window, or the windows of a batch."""
        shape = (self.n_calls, -1, n_parts)
        size = self.n_calls * self.n_rows * (3 if circumstance == "window" else 1)
        sums = np.bincount(parts, self.outcomes - self.mean, size).reshape(shape)
        counts = np.bincount(parts, minlength=size).reshape(shape)
        scores, pairs = (sum_.sum(2) ** 2 - (sum_**2).sum(2) for sum_ in (sums, counts))
        variance = max(1e-9, self.mean * (1 - self.mean))
        found = of_means(scores.sum(1, keepdims=True), variance * pairs.sum(1, keepdims=True), 0.0)
        what = f"correlation of {self.what} within a {circumstance}"
        return Pair(self.outcome, circumstance, what, circumstance, found, effect=0.015)


def selection(table: Table) -> Iterator[Pair]:
    """Everything that the selection of a position may depend on."""
    sample = Sample(table, "selected", "the share selected", table.eligible, table.selected)
    if not len(sample.at):
        return
    ids, n_ids = table.ids, int(table.ids.max()) + 1
    yield sample.by("position", "position", table.columns, int(table.columns.max()) + 1)
    yield sample.by("position", "eighth", table.eighths, 8, 1)
    yield sample.by("id", "id class", ids, n_ids)
    yield sample.by("id", "id modulo 2:", table.originals % 2, 2, ordered=False)
    yield sample.by("token before", "id class", shifted(ids, 1, n_ids), n_ids + 1, ordered=False)
    yield sample.by("token after", "id class", shifted(ids, -1, n_ids), n_ids + 1, ordered=False)
    same = (shifted(table.originals, 1, -1) == table.originals).astype(int)
    yield sample.by("token before", "same token before (1) or not (0):", same, 2, ordered=False)
    yield sample.by("row", "row", np.arange(sample.n_rows)[:, None], sample.n_rows, in_window=False)
    has_special = ((table.real & ~table.eligible).any(2, keepdims=True)).astype(int)
    yield sample.by("special", "special tokens in the window (1) or not (0):", has_special, 2, ordered=False, in_window=False)
    yield from sample.by_call()
    yield from neighbors(sample)


def neighbors(sample: Sample) -> Iterator[Pair]:
    """Whether a position is selected because another one is: `lag` before, or in another row of the call."""
    residuals = np.zeros(sample.where.size)
    expected = sample.expected(sample.windows)
    residuals[sample.at] = sample.outcomes - expected
    residuals = residuals.reshape(sample.where.shape)
    counts = np.maximum(2, sample.where.sum(2, keepdims=True))
    variance = np.zeros(sample.where.size)
    variance[sample.at] = expected * (1 - expected)
    variance = variance.reshape(sample.where.shape)
    lags = range(1, min(LAGS, sample.width - 2) + 1)
    scores, totals = np.zeros((sample.n_calls, len(lags))), np.zeros((sample.n_calls, len(lags)))
    for lag in lags:
        both = sample.where[..., lag:] & sample.where[..., :-lag]
        # Of a fixed number of selected positions, each makes the others less likely.
        product = residuals[..., lag:] * residuals[..., :-lag] + both * variance[..., lag:] / (counts - 1)
        scores[:, lag - 1], totals[:, lag - 1] = product.sum((1, 2)), (both * variance[..., lag:]).sum((1, 2))
    scale = (1 - sample.mean) if sample.mean < 1 else 1.0
    found = of_means(scale * scores, totals, sample.mean)
    yield Pair("selected", "neighbors", "the share selected, if the token k before is,", "k =", found, 1)
    if sample.n_rows > 1 and totals.sum():
        yield rows_together(sample, residuals, variance)


def rows_together(sample: Sample, residuals: np.ndarray, variance: np.ndarray) -> Pair:
    """Whether rows of a call repeat each other, at any distance of rows and columns: the autocorrelation in both."""
    size = (2 * sample.n_rows, sample.width)
    scores = np.stack([
        np.fft.irfft2(np.abs(np.fft.rfft2(call, s=size)) ** 2, s=size)[1 : sample.n_rows].ravel() for call in residuals
    ])  # fmt: skip
    one_row = variance.sum((1, 2)) / sample.n_rows
    found = of_means(scores, one_row[:, None], 0.0)
    best = int(np.abs(found.z).argmax())
    down, right = best // sample.width + 1, (best % sample.width + sample.width // 2) % sample.width - sample.width // 2
    what = f"rows that repeat the selection {down} rows above, moved by {right}"
    sure = found.p < LEVEL
    one = Dependence(found.shares[best : best + 1], 0.0, found.z[best : best + 1] * sure, found.n_units)
    return Pair("selected", "rows", what, "row", one, effect=0.1)


def kinds(table: Table) -> Iterator[Pair]:
    """Everything that the kind of a selected position, [MASK], random or unchanged, may depend on."""
    order = eighths_of(table.selected)
    ids, n_ids = table.ids, int(table.ids.max()) + 1
    for what, happens in (("[MASK]", table.masked), ("random", table.randomized)):
        sample = Sample(table, "kind", f"the share of {what}", table.selected, happens)
        if not 0.005 < sample.mean < 0.995:
            continue
        yield sample.by("position", "position", table.columns, int(table.columns.max()) + 1)
        yield sample.by("position", "eighth of the window's selected position", order, 8, 1)
        yield sample.by("id", "id class", ids, n_ids)
        yield sample.by("id", "id modulo 2:", table.originals % 2, 2, ordered=False)
        yield sample.by("token before", "id class", shifted(ids, 1, n_ids), n_ids + 1, ordered=False)
        yield sample.by("row", "row", np.arange(sample.n_rows)[:, None], sample.n_rows, in_window=False)
        yield from sample.by_call()
        yield successive(sample)


def successive(sample: Sample) -> Pair:
    """Whether a kind repeats from one selected position of a window to the next."""
    residuals = sample.outcomes - sample.expected(sample.windows)
    together = sample.windows[1:] == sample.windows[:-1]
    counts = np.bincount(sample.windows)[sample.windows]
    variance = sample.expected(sample.windows) * (1 - sample.expected(sample.windows))
    products = residuals[1:] * residuals[:-1] + variance[1:] / np.maximum(1, counts[1:] - 1)
    calls = sample.calls[1:][together]
    scores = np.bincount(calls, products[together], sample.n_calls)
    totals = np.bincount(calls, variance[1:][together], sample.n_calls)
    found = of_means((1 - sample.mean) * scores[:, None], totals[:, None], sample.mean)
    return sample.pair("neighbors", "after another one", found)


def replacements(table: Table) -> Iterator[Pair]:
    """Everything that a random token may depend on: its original, its window, and the other random tokens.

    Relations are compared with those to a position of another window, where they can only be chance.
    """
    at = np.flatnonzero(table.randomized & np.isin(table.inputs, table.tokens.ordinary))
    n_calls, n_rows, width = table.inputs.shape
    n = len(table.tokens.ordinary)
    if len(at) < 400 or n < 4:
        return
    new, old = (np.searchsorted(table.tokens.ordinary, part.ravel()[at]) for part in (table.inputs, table.originals))
    calls, windows = at // (n_rows * width), at // width
    n_bins = min(BINS, n)
    bins = new * n_bins // n
    circumstances = {
        "original": ("the original's id class", old * n_bins // n),
        "position": ("position class", at % width * n_bins // width),
        "row": ("row", windows % n_rows),
        "call": ("call, counted modulo 2: number", calls % 2),
    }
    for name, (along, classes) in circumstances.items():
        n_classes, tested = int(classes.max()) + 1, []
        for each in range(n_bins):
            at_all = (classes != each) if name == "original" else np.ones(len(at), dtype=bool)  # never the original
            happens = (bins == each)[at_all].astype(float)
            mean = np.full(len(happens), happens.mean())
            tested.append(by_class(calls[at_all], classes[at_all], happens, mean, n_calls, n_classes))
        worst = max(tested, key=lambda each: np.abs(each.z).max())
        yield Pair("replacement", name, "the share of one class of random tokens", along, worst, ordered=False)
    relation = partial(related, calls=calls, n_calls=n_calls, new=new)
    other = np.roll(np.arange(len(at)), len(at) // 2)  # another random token, of another call
    gap, chance = (new - old) % n, (new - old[other]) % n
    is_other = (chance != 0) & (gap != 0)
    steps = np.minimum(np.where(gap > n // 2, n - gap, gap), 3), np.minimum(np.where(chance > n // 2, n - chance, chance), 3)
    classes = [("the distance (up to 3) to the original's id", *steps)]
    if n <= 256:
        classes.append(("the difference to the original's id", gap, chance))
    for along, here, there in classes:
        yield relation("original", "random tokens", along, here[is_other], there[is_other], units=calls[is_other])
    flat = np.where(table.eligible, table.originals, -1).ravel()
    tokens, lag = table.inputs.ravel()[at], np.roll(at, len(at) // 2)
    for step, side in ((-1, "before"), (1, "after")):
        near, far = flat[(at + step) % len(flat)] == tokens, flat[(lag + step) % len(flat)] == tokens
        yield relation("neighbors", f"random tokens that equal the token {side}", "", near, far)
    occurrences = counts_of(flat.reshape(-1, width), windows, tokens), counts_of(flat.reshape(-1, width), windows[other], tokens)
    yield relation("window", "random tokens that their window contains", "", occurrences[0], occurrences[1])
    next_one = np.roll(np.arange(len(at)), -1)
    inside = (windows[next_one] == windows) & (np.arange(len(at)) < len(at) - 1)
    again, chance = (tokens == tokens[next_one])[inside], (tokens == tokens[other])[inside]
    yield relation("other replacements", "random tokens that the next one repeats", "", again, chance, units=calls[inside])
    order = np.lexsort((np.arange(len(at)), old))
    equal_old = np.flatnonzero(old[order][1:] == old[order][:-1])
    one, two = order[equal_old], order[equal_old + 1]
    yield relation("original", "random tokens that are the same for the same original", "", tokens[one] == tokens[two],
                   (tokens == tokens[other])[one], units=calls[one])  # fmt: skip


def related(circumstance: str, what: str, along: str, here: np.ndarray, there: np.ndarray, *, calls: np.ndarray,
            n_calls: int, new: np.ndarray, units: np.ndarray | None = None) -> Pair:  # fmt: skip
    """Test that a relation, by class, is as frequent as one that can only be chance."""
    units = calls if units is None else units
    n_classes = int(max(here.max(initial=0), there.max(initial=0))) + 1
    counts = []
    for relation in (here, there):
        cells = units * n_classes + relation
        counts.append(np.bincount(cells, minlength=n_calls * n_classes).reshape(n_calls, n_classes).astype(float))
    if not along:  # whether the relation holds, or how often
        counts = [(part * np.arange(n_classes)).sum(1, keepdims=True) for part in counts]
    totals = np.bincount(units, minlength=n_calls)[:, None].astype(float)
    chance = np.maximum(counts[1].sum(0), 0.5) / max(1, totals.sum())
    found = of_means(counts[0] - counts[1], totals, 0.0)
    rare = (counts[0].sum(0) + counts[1].sum(0)) < 120
    mean = float(chance.mean())
    # Shares are centered on the mean over classes, so that a share of 0 is a relation that never happens.
    shares = np.where(rare, np.nan, found.shares * (mean / chance) + mean)
    return Pair("replacement", circumstance, what, along or "chance",
                Dependence(shares, mean, np.where(rare, 0.0, found.z), n_calls), ordered=False)  # fmt: skip


def counts_of(texts: np.ndarray, windows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """How often each token occurs in its window of the texts."""
    return (texts[windows] == tokens[:, None]).sum(1)


def battery(table: Table) -> list[Pair]:
    """All pairs of the main text."""
    parts: tuple[Callable[[Table], Iterator[Pair]], ...] = (selection, kinds, replacements)
    return [pair for part in parts for pair in part(table)]
