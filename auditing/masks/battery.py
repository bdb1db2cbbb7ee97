"""The battery: tests every declared pair of an outcome and a circumstance for independence."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditing.masks.table import Table, eighths_of, shifted
from auditing.statistics import LEVEL, Dependence, by_class, of_means, of_units

LAGS = 40  # tokens
PERIODS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16)  # of calls
EFFECTS = {"selected": 0.06, "kind": 0.02, "replacement": 0.1}  # the smallest to report; all but kinds are relative
BINS = 16  # of replacements
RARE = 120  # relations that are observed less often are not tested


@dataclass(frozen=True, eq=False)
class Pair:
    """One tested pair. `outcome` and `circumstance` name its entry in the catalogue and in a recipe."""

    outcome: str
    circumstance: str
    what: str  # the share that is measured, in words
    along: str  # the classes of the circumstance, in words; empty if the share is compared with chance
    found: Dependence
    first: int = 0  # the number of the first class
    ordered: bool = True  # whether the classes have an order in which a trend makes sense
    effect: float | None = None  # the smallest to report; by default that of the outcome
    rises: bool = False  # only shares above the mean count

    @property
    def key(self) -> tuple[str, str]:
        return self.outcome, self.circumstance

    @property
    def name(self) -> str:
        """The slug of a finding about the pair."""
        slug = f"{self.outcome}-by-{self.circumstance.replace(' ', '-')}"
        return "position-dependent" if slug == "selected-by-position" else slug

    @property
    def is_found(self) -> bool:
        """Whether the outcome depends on the circumstance, by more than chance and by more than what matters."""
        effect = EFFECTS[self.outcome] * (1.0 if self.outcome == "kind" else abs(self.found.mean))
        right_way = not self.rises or float(np.nansum(self.found.z)) > 0
        return right_way and self.found.exceeds(effect if self.effect is None else self.effect)

    @property
    def z(self) -> float:
        """The largest |z|."""
        return float(np.abs(self.found.z).max(initial=0.0))

    def text(self) -> str:
        """The dependence in plain words with numbers."""
        shares, used = self.found.shares.clip(0), np.flatnonzero(np.isfinite(self.found.shares))
        low, high = used[shares[used].argmin()], used[shares[used].argmax()]
        if not self.along and not self.found.mean:
            return self.what
        if not self.along:
            return f"{self.what}: {shares[low] / max(self.found.mean, 1e-9):.2g} times as often as by chance"
        if len(used) == 1:
            return f"{self.what}: {shares[low]:.1%} {self.along}"
        if len(self.found.never) and len(used) > 2:
            return f"{self.what}: never at {self.along} {listed(self.found.never + self.first)}"
        eighth = max(1, len(used) // 8)
        begin, end = shares[used[:eighth]].mean(), shares[used[-eighth:]].mean()
        if self.ordered and len(used) > 4 and abs(np.corrcoef(used, shares[used])[0, 1]) > 0.85:
            verb = "rises" if end > begin else "falls"
            return f"{self.what} {verb} from {begin:.1%} to {end:.1%} with the {self.along}"
        ends = f"{shares[low]:.1%} at {self.along} {low + self.first}, {shares[high]:.1%} at {high + self.first}"
        return f"{self.what}: {ends}"


def listed(numbers: np.ndarray) -> str:
    """The first of some numbers, in words."""
    text = ", ".join(str(number) for number in numbers[:4])
    return f"{text} and {len(numbers) - 4} more" if len(numbers) > 4 else text


class Sample:
    """Positions at which an outcome is observed, and what is expected of it there if nothing else matters: the share
    in its own window, so that rates may differ by window, or in its call."""

    def __init__(self, table: Table, outcome: str, what: str, where: np.ndarray, happens: np.ndarray):
        self.table, self.outcome, self.what, self.where = table, outcome, what, where
        self.at = np.flatnonzero(where)
        self.outcomes = happens.ravel()[self.at].astype(float)
        self.n_calls, self.n_rows, self.width = where.shape
        self.windows = self.at // self.width
        self.calls = self.windows // self.n_rows
        self.mean = float(self.outcomes.mean()) if len(self.at) else 0.0
        self.expected = self.mean_in(self.windows)

    def mean_in(self, strata: np.ndarray) -> np.ndarray:
        """The outcome's share in the stratum of each position."""
        return (np.bincount(strata, self.outcomes) / np.maximum(1, np.bincount(strata)))[strata]

    def by(self, circumstance: str, along: str, classes: np.ndarray, first: int = 0, ordered: bool = True) -> Pair:
        """Test independence of the classes of positions, `[n_calls, rows, width]`, or of windows, `[..., 1]`."""
        expected = self.expected if classes.shape[-1] > 1 else self.mean_in(self.calls)
        flat = np.broadcast_to(classes, self.where.shape).ravel()[self.at]
        found = by_class(self.calls, flat, self.outcomes, expected, self.n_calls)
        return Pair(self.outcome, circumstance, self.what, along, found, first, ordered)

    def by_all(self) -> Iterator[Pair]:
        """The circumstances of every outcome."""
        table, ids = self.table, self.table.ids
        yield self.by("position", "position", table.columns)
        yield self.by("id", "id class", ids)
        yield self.by("id parity", "id modulo 2:", table.originals % 2, ordered=False)
        yield self.by("token before", "id class", shifted(ids, 1, ids.max() + 1), ordered=False)
        yield self.by("token after", "id class", shifted(ids, -1, ids.max() + 1), ordered=False)
        yield self.by("row", "row", np.arange(self.n_rows)[None, :, None])
        special = (table.real & ~table.eligible).any(2, keepdims=True).astype(int)
        yield self.by("special", "special tokens in the window (1) or not (0):", special, ordered=False)
        parts, totals = (
            np.bincount(self.calls, self.outcomes, self.n_calls),
            np.bincount(self.calls, minlength=self.n_calls),
        )
        number = np.arange(self.n_calls)
        drift = of_units(parts, totals, 8 * number // self.n_calls)
        yield Pair(self.outcome, "call", self.what, "eighth of the calls", drift, 1)
        for period in PERIODS:
            along = f"call, counted modulo {period}: number"
            yield Pair(self.outcome, "call", self.what, along, of_units(parts, totals, number % period), ordered=False)
        yield self.together("batch", self.windows, self.n_rows)
        yield self.together("window", self.windows * 3 + self.at % self.width * 3 // self.width, 3)

    def together(self, circumstance: str, parts: np.ndarray, n_parts: int) -> Pair:
        """Whether the outcome has its own share in each window, or in each batch: its correlation between the thirds of
        a window, or the windows of a batch."""
        size = self.n_calls * self.n_rows * (3 if circumstance == "window" else 1)
        sums, counts = np.bincount(parts, self.outcomes - self.mean, size), np.bincount(parts, minlength=size)
        scores, pairs = (each.sum(2) ** 2 - (each**2).sum(2) for each in (
            part.reshape(self.n_calls, -1, n_parts) for part in (sums, counts)))  # fmt: skip
        variance = max(1e-9, self.mean * (1 - self.mean))
        found = of_means(scores.sum(1, keepdims=True), variance * pairs.sum(1, keepdims=True))
        effect = 0.015 if self.outcome == "selected" else 0.1
        what = f"{self.what} is correlated within a {circumstance} ({found.shares[0]:.0%})"
        return Pair(self.outcome, circumstance, what, "", found,
                    effect=effect, rises=True)  # fmt: skip

    def neighbors(self) -> Pair:
        """Whether the outcome happens next to where it happens: at each distance between tokens of a window."""
        residuals, variance = np.zeros(self.where.shape), np.zeros(self.where.shape)
        residuals.flat[self.at] = self.outcomes - self.expected
        variance.flat[self.at] = self.expected * (1 - self.expected)
        # Of a fixed number of outcomes in a window, each makes the others less likely.
        correction = variance / (np.maximum(2, self.where.sum(2, keepdims=True)) - 1)
        scores, totals = [], []
        for lag in range(1, min(LAGS, self.width - 2) + 1):
            both = self.where[..., lag:] & self.where[..., :-lag]
            products = residuals[..., lag:] * residuals[..., :-lag] + both * correction[..., lag:]
            scores.append(products.sum((1, 2)))
            totals.append((both * variance[..., lag:]).sum((1, 2)))
        found = of_means((1 - self.mean) * np.stack(scores, 1), np.stack(totals, 1), self.mean)
        return Pair(self.outcome, "neighbors", f"{self.what} next to another one", "distance", found, 1)

    def rows(self) -> Pair:
        """Whether rows of a call repeat, or avoid, each other's outcome, at any distance of rows and columns: the
        autocorrelation in both."""
        residuals, size = np.zeros(self.where.size), (2 * self.n_rows, self.width)
        residuals[self.at] = self.outcomes - self.expected
        scores = np.stack([
            np.fft.irfft2(np.abs(np.fft.rfft2(call, s=size)) ** 2, s=size)[1 : self.n_rows].ravel()
            for call in residuals.reshape(self.where.shape)
        ])  # fmt: skip
        one_row = np.bincount(self.calls, self.expected * (1 - self.expected), self.n_calls) / self.n_rows
        found = of_means(scores, one_row[:, None])
        best = int(np.abs(found.z).argmax())
        down, right = best // self.width + 1, (best % self.width + self.width // 2) % self.width - self.width // 2
        verb = "repeat" if found.z[best] > 0 else "avoid"
        what = f"{abs(found.shares[best]):.1f} rows of a batch {verb} the one {down} above, moved by {right}"
        one = Dependence(found.shares[[best]], 0.0, found.z[[best]] * (found.p < LEVEL), found.n_units, found.never)
        return Pair(self.outcome, "rows", what, "", one, effect=0.1)


def selection(table: Table) -> Iterator[Pair]:
    """Everything that the selection of a position may depend on."""
    sample = Sample(table, "selected", "the share selected", table.eligible, table.selected)
    yield from sample.by_all()
    yield sample.by("position", "eighth of the window", table.eighths, 1)
    repeats = (shifted(table.originals, 1, -1) == table.originals).astype(int)
    yield sample.by("token before", "same token before (1) or not (0):", repeats, ordered=False)
    chosen = table.selected.astype(int)
    before = np.concatenate([np.zeros_like(chosen[:1]), chosen[:-1]])
    yield sample.by("call before", "the same place of the call before, not selected (0) or selected (1):", before)
    yield sample.neighbors()
    if sample.n_rows > 1:
        yield sample.rows()
    ids, expected = table.originals.ravel()[sample.at], sample.expected
    columns = np.arange(sample.width)
    mirror = chosen[..., ::-1] * (columns != columns[::-1])  # not the middle column, which mirrors itself
    other, counts = mirror.ravel()[sample.at], np.bincount(sample.windows)[sample.windows]
    sample.expected = (counts * expected - other) / np.maximum(1, counts - 1)  # of the others in the window
    yield sample.by("mirror", "the mirrored place, not selected (0) or selected (1):", mirror)
    sample.expected = expected * sample.mean_in(ids) / max(1e-9, sample.mean)  # ids may have rates of their own
    yield successive(sample, "same id", "at the next occurrence of a selected id", np.lexsort((ids, sample.calls)), ids)


def kinds(table: Table) -> Iterator[Pair]:
    """Everything that the kind of a selected position, [MASK], random or unchanged, may depend on."""
    for what, happens in (("[MASK]", table.masked), ("random", table.randomized)):
        sample = Sample(table, "kind", f"the share of {what}", table.selected, happens)
        if 0.005 < sample.mean < 0.995:
            yield from sample.by_all()
            yield sample.by("position", "eighth of the selected positions, number", eighths_of(table.selected), 1)
            order = np.arange(len(sample.at))
            yield successive(sample, "neighbors", "after another one", order, sample.windows)
            before = shifted(table.selected.astype(int), 1, 0)
            yield sample.by("neighbors", "selected token before (1) or none (0):", before, ordered=False)
            if sample.n_rows > 1:
                yield sample.rows()


def successive(sample: Sample, circumstance: str, along: str, order: np.ndarray, group: np.ndarray) -> Pair:
    """Whether an outcome repeats from one position to the next of its group, in an order of the positions."""
    one, two = order[:-1], order[1:]
    inside = (group[one] == group[two]) & (sample.calls[one] == sample.calls[two])
    one, two = one[inside], two[inside]
    residuals, variance = sample.outcomes - sample.expected, sample.expected * (1 - sample.expected)
    # The mean of a window makes the outcomes in it differ.
    correction = variance / np.maximum(1, np.bincount(sample.windows)[sample.windows] - 1)
    products = residuals[one] * residuals[two] + correction[two] * (sample.windows[one] == sample.windows[two])
    scores, totals = (
        np.bincount(sample.calls[two], part, sample.n_calls)[:, None] for part in (products, variance[two])
    )
    found = of_means((1 - sample.mean) * scores, totals, sample.mean)
    return Pair(sample.outcome, circumstance, sample.what, along, found)


def by_length(table: Table) -> Iterator[Pair]:
    """Whether a kind depends on how long a window is, among windows of at least 16 tokens. Rates may: some maskers take
    a share of the padded width."""
    lengths = table.eligible.sum(2, keepdims=True)
    sample = Sample(table, "kind", "the share of [MASK]", table.selected & (lengths >= 16), table.masked)
    if 0.005 < sample.mean < 0.995:
        yield sample.by("length", "windows of 16 to 31 tokens (0) or more (1):", (lengths > 31).astype(int))


def replacements(table: Table) -> Iterator[Pair]:
    """Everything that a random token may depend on: its original, its window, and the other random tokens."""
    n_calls, n_rows, width = table.inputs.shape
    ordinary, at = (
        table.tokens.ordinary,
        np.flatnonzero(table.randomized & np.isin(table.inputs, table.tokens.ordinary)),
    )
    n, calls, windows = len(ordinary), at // (n_rows * width), at // width
    if len(at) < 400 or n < 4:
        return
    tokens = table.inputs.ravel()[at]
    new, old = np.searchsorted(ordinary, tokens), table.ranks.ravel()[at]
    bins = new * min(BINS, n) // n
    circumstances = {
        "original": ("the original's id class", old * min(BINS, n) // n),
        "position": ("sixteenth of the window", at % width * BINS // width),
        "row": ("row", windows % n_rows),
        "call": ("call, counted modulo 2: number", calls % 2),
    }
    for name, (along, classes) in circumstances.items():
        tested = []
        for each in np.unique(bins):
            used = (classes != each) if name == "original" else np.ones(len(at), dtype=bool)  # never the original
            happens = (bins == each)[used].astype(float)
            tested.append(by_class(calls[used], classes[used], happens, np.full(len(happens), happens.mean()), n_calls))
        worst = max(tested, key=lambda each: np.abs(each.z).max())
        yield Pair("replacement", name, "the share of one class of random tokens", along, worst, ordered=False)
    # Relations are compared with those to another random token, of another call, where they can only be chance.
    other = np.roll(np.arange(len(at)), len(at) // 2)
    gap, chance = (new - old) % n, (new - old[other]) % n
    used, near = (chance != 0) & (gap != 0), lambda gap: np.minimum(np.minimum(gap, n - gap), 3)
    relations = {"distance (at most 3) of the original's id": (near(gap), near(chance))}
    if n <= 256:
        relations["difference to the original's id"] = gap, chance
    for along, (here, there) in relations.items():
        yield related("original", "random tokens", along, here[used], there[used], calls[used], n_calls)
    flat = np.where(table.eligible, table.originals, -1).ravel()
    for step, side in ((-1, "before"), (1, "after"), (-width, "in the row above")):
        here, there = (flat[(place + step) % len(flat)] == tokens for place in (at, at[other]))
        yield related("neighbors", f"random tokens that equal the token {side}", "", here, there, calls, n_calls)
    texts = flat.reshape(-1, width)
    here, there = ((texts[of] == tokens[:, None]).sum(1) for of in (windows, windows[other]))
    yield related("window", "random tokens occur in their window", "", here, there, calls, n_calls)
    chance, order = tokens == tokens[other], np.argsort(old, kind="stable")
    columns = calls * width + at % width
    for name, what, following, group in (
        ("other replacements", "the next random token is the same", np.arange(len(at)), windows),
        ("original", "the same original gets the same random token", order, old),
        ("rows", "the next row has the same random token there", np.argsort(columns, kind="stable"), columns),
    ):
        one, two = following[:-1], following[1:]
        one, two = one[group[one] == group[two]], two[group[one] == group[two]]
        yield related(name, what, "", tokens[one] == tokens[two], chance[one], calls[one], n_calls)


def related(
    circumstance: str, what: str, along: str, here: np.ndarray, there: np.ndarray, calls: np.ndarray, n_calls: int
) -> Pair:
    """Test that a relation, by class or by count, is as frequent as one that can only be chance."""
    n_classes = int(max(here.max(initial=0), there.max(initial=0))) + 1
    counts = [
        np.bincount(calls * n_classes + each, minlength=n_calls * n_classes).reshape(n_calls, -1)
        for each in (here, there)
    ]
    if not along:  # whether the relation holds, or how often
        counts = [(part * np.arange(n_classes)).sum(1, keepdims=True) for part in counts]
    totals, n_observed = np.bincount(calls, minlength=n_calls)[:, None], counts[0].sum(0) + counts[1].sum(0)
    chance = np.maximum(counts[1].sum(0), 0.5) / max(1, totals.sum())
    found, mean = of_means((counts[0] - counts[1]).astype(float), totals), float(chance.mean())
    # Shares are relative to the chance of their class.
    shares = np.where(n_observed < RARE, np.nan, mean + found.shares * mean / chance)
    relative = Dependence(shares, mean, np.where(n_observed < RARE, 0.0, found.z), n_calls, found.never)
    return Pair("replacement", circumstance, what, along, relative, ordered=False)


def battery(table: Table) -> list[Pair]:
    """All pairs of the main text."""
    return [*selection(table), *kinds(table), *replacements(table)]
