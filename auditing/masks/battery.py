"""The battery: tests every declared pair of an outcome and a circumstance for independence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from auditing.masks.table import CLASSES, Table, eighths_of, shifted
from auditing.statistics import LEVEL, Dependence, by_class, of_means, of_units

LAGS = 40  # tokens
GRIDS = (3, 4)  # positions; 4 also shows blocks of 2
LEAST_IN_GRID = (
    0.35  # of the mean; words begin at the first position, and ends cut spans, which makes less
)
PERIODS = (
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
)  # of calls; a longer one has so few alike that their spread hides them
EFFECTS = {
    "selected": 0.06,
    "kind": 0.02,
    "replacement": 0.1,
}  # the smallest to report; all but kinds are relative
BINS = 8  # of replacements and of their circumstances
LEAST_IN_WINDOW = (
    0.005  # the smallest correlation to report; spans across thirds of a window make half of it
)
PLACES = 8  # at each end of windows of other lengths, each a class; all others are the last class
RARE = 120  # relations that are observed less often are not tested


@dataclass(frozen=True, eq=False)
class Pair:
    """One tested pair. `outcome` and `circumstance` name its entry in the catalogue and in a
    recipe."""

    outcome: str
    circumstance: str
    what: str  # the share that is measured, in words
    # names the classes, such as "row", or each of two, as "at even ids|at odd ids"; empty if there
    # are none
    along: str
    found: Dependence
    first: int = 0  # the number of the first class
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

    @cached_property
    def is_found(self) -> bool:
        """Whether the outcome depends on the circumstance, by more than chance and by more than
        what matters."""
        effect = EFFECTS[self.outcome] * (1.0 if self.outcome == "kind" else abs(self.found.mean))
        right_way = not self.rises or float(np.nansum(self.found.z)) > 0
        return right_way and self.found.exceeds(effect if self.effect is None else self.effect)

    @property
    def z(self) -> float:
        """The largest |z| by the observed spread."""
        return float(np.maximum(np.abs(self.found.z), np.abs(self.found.raw)).max(initial=0.0))

    def text(self) -> str:
        """The dependence in plain words with numbers."""
        shares, used = self.found.shares.clip(0), np.flatnonzero(np.isfinite(self.found.shares))
        low, high = used[shares[used].argmin()], used[shares[used].argmax()]
        if not self.along and not self.found.mean:
            return self.what
        if not self.along:
            return f"{self.what}: {shares[low] / max(self.found.mean, 1e-9):.2g} times as often as by chance"
        if len(used) == 1:
            return f"{self.what}: {shares[low]:.1%} {self.along.split('|')[low] if '|' in self.along else self.along}"
        if len(self.found.never) and len(used) > 2:
            numbers = [str(number + self.first) for number in self.found.never]
            more = f" and {len(numbers) - 4} more" * (len(numbers) > 4)
            return f"{self.what}: never at {self.along} {', '.join(numbers[:4])}{more}"
        eighth = max(1, len(used) // 8)
        begin, end = shares[used[:eighth]].mean(), shares[used[-eighth:]].mean()
        if (
            ":" not in self.along
            and len(used) > 4
            and abs(np.corrcoef(used, shares[used])[0, 1]) > 0.85
        ):
            verb = "rises" if end > begin else "falls"
            return f"{self.what} {verb} from {begin:.1%} to {end:.1%} with the {self.along.removesuffix(', number')}"
        if "|" in self.along:
            names = self.along.split("|")
            return f"{self.what}: {shares[low]:.1%} {names[low]}, {shares[high]:.1%} {names[high]}"
        ends = f"{shares[low]:.1%} at {self.along} {low + self.first}, {shares[high]:.1%} at {high + self.first}"
        return f"{self.what}: {ends}"


class Sample:
    """Positions at which an outcome is observed, and what is expected of it there if nothing else
    matters: the share in its own window, so that rates may differ by window, or in its call."""

    def __init__(
        self, table: Table, outcome: str, what: str, where: np.ndarray, happens: np.ndarray
    ):
        self.table, self.outcome, self.what, self.where = table, outcome, what, where
        self.at = np.flatnonzero(where)
        self.outcomes = happens[where].astype(float)
        self.n_calls, self.n_rows, self.width = where.shape
        self.windows = self.at // self.width
        self.calls = self.windows // self.n_rows
        self.mean = float(self.outcomes.mean()) if len(self.at) else 0.0
        self.expected = self.mean_in(self.windows)
        self.strata = [self.windows]  # whose shares `expected` holds

    def mean_in(self, strata: np.ndarray) -> np.ndarray:
        """The outcome's share in the stratum of each position."""
        return (np.bincount(strata, self.outcomes) / np.maximum(1, np.bincount(strata)))[strata]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values of the positions as `[n_calls, rows, width]`, 0 elsewhere."""
        everywhere = np.zeros(self.where.shape)
        everywhere[self.where] = values
        return everywhere

    def pair(self, circumstance: str, along: str, found: Dependence, first: int = 0) -> Pair:
        """A tested pair of the outcome."""
        return Pair(self.outcome, circumstance, self.what, along, found, first)

    def by(self, circumstance: str, along: str, classes: np.ndarray, first: int = 0) -> Pair:
        """Test independence of the classes of positions, `[n_calls, rows, width]`, or of windows,
        `[..., 1]`."""
        expected = self.expected if classes.shape[-1] > 1 else self.mean_in(self.calls)
        flat = np.broadcast_to(classes, self.where.shape)[self.where]
        return self.pair(
            circumstance,
            along,
            by_class(self.calls, flat, self.outcomes, expected, self.n_calls),
            first,
        )

    def by_all(self) -> Iterator[Pair]:
        """The circumstances of every outcome."""
        table, ids, columns = self.table, self.table.ids, np.arange(self.width)
        yield self.by(
            "position",
            "position",
            (columns * min(self.width, 2 * CLASSES) // self.width)[None, None],
        )
        yield self.by("id", "id class", ids)
        yield self.by("id parity", "at even ids|at odd ids", table.originals % 2)
        yield self.by("token before", "id class", shifted(ids, 1, ids.max() + 1))
        yield self.by("token after", "id class", shifted(ids, -1, ids.max() + 1))
        yield self.by("row", "row", np.arange(self.n_rows)[None, :, None])
        has_special = (table.real & ~table.eligible).any(2, keepdims=True).astype(int)
        yield self.by("special", "in windows without special tokens|in others", has_special)
        parts, totals = (
            np.bincount(self.calls, each, self.n_calls) for each in (self.outcomes, None)
        )
        number = np.arange(self.n_calls)
        yield self.pair(
            "call", "eighth of the calls", of_units(parts, totals, 8 * number // self.n_calls), 1
        )
        for period in PERIODS:
            along = f"call, counted modulo {period}: number"
            yield self.pair("call", along, of_units(parts, totals, number % period))
        yield self.together("batch", self.windows, self.n_rows)
        yield self.together("window", self.windows * 3 + self.at % self.width * 3 // self.width, 3)

    def by_equals(self) -> Iterator[Pair]:
        """Whether the outcome depends on equal tokens: the one before, or another in the window."""
        repeats = (shifted(self.table.originals, 1, -1) == self.table.originals).astype(int)
        yield self.by("token before", "after another token|after an equal one", repeats)
        yield self.by(
            "same id", "where the window has no equal token|where it has one", self.table.recurring
        )

    def together(self, circumstance: str, parts: np.ndarray, n_parts: int) -> Pair:
        """Whether the outcome has its own share in each window, or in each batch: its correlation
        between the thirds of a window, or the windows of a batch."""
        size = self.n_calls * self.n_rows * (3 if circumstance == "window" else 1)
        sums, counts = (
            np.bincount(parts, self.outcomes - self.mean, size),
            np.bincount(parts, minlength=size),
        )
        scores, pairs = ((each.sum(2) ** 2 - (each**2).sum(2)).sum(1, keepdims=True) for each in (
            part.reshape(self.n_calls, -1, n_parts) for part in (sums, counts)))  # fmt: skip
        variance = max(1e-9, self.mean * (1 - self.mean))
        found = of_means(scores, variance * pairs)
        # In batches of equally long windows, rounding changes the rate by up to half a label per
        # window.
        varying = (
            max(EFFECTS["selected"] * self.mean, 0.5 / max(1, counts[counts > 0].mean())) ** 2
            / variance
        )
        effect = (
            0.1
            if self.outcome == "kind"
            else varying
            if circumstance == "batch"
            else LEAST_IN_WINDOW
        )
        deviation = 100 * max(0.0, found.shares[0] * variance) ** 0.5
        what = f"{self.what} varies by ± {deviation:.1f} percentage points from {circumstance} to {circumstance}"
        return Pair(self.outcome, circumstance, what, "", found, effect=effect, rises=True)

    def neighbors(self) -> Pair:
        """Whether the outcome happens next to where it happens: at each distance between tokens of
        a window."""
        variance, size = self.spread(self.expected * (1 - self.expected)), 2 * self.width
        residuals, there, spread = (
            np.fft.rfft(part, size)
            for part in (self.spread(self.outcomes - self.expected), self.where, variance)
        )

        def at_lags(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            """Products of positions at each distance, summed by call."""
            return np.fft.irfft((one * other.conj()).sum(1), size)[
                :, 1 : min(LAGS, self.width - 2) + 1
            ]

        # Of a fixed number of outcomes in a window, each makes the others less likely.
        others = np.maximum(2, self.where.sum(2, keepdims=True)) - 1
        scores = at_lags(residuals, residuals) + at_lags(spread / others, there)
        found = of_means((1 - self.mean) * scores, at_lags(spread, there).round(6), self.mean)
        return Pair(
            self.outcome, "neighbors", f"{self.what} next to another one", "distance", found, 1
        )

    def rows(self) -> Pair:
        """Whether rows of a call repeat, or avoid, each other's outcome, at any distance of rows
        and columns: the autocorrelation in both."""
        size = (2 * self.n_rows, self.width)
        spectrum = np.fft.rfft2(self.spread(self.outcomes - self.expected), s=size)
        scores = np.fft.irfft2(np.abs(spectrum) ** 2, s=size)[:, 1 : self.n_rows].reshape(
            self.n_calls, -1
        )
        one_row = (
            np.bincount(self.calls, self.expected * (1 - self.expected), self.n_calls) / self.n_rows
        )
        found = of_means(scores, one_row[:, None])
        best = int(np.abs(found.z).argmax())
        down, right = (
            best // self.width + 1,
            (best % self.width + self.width // 2) % self.width - self.width // 2,
        )
        verb, share = "repeat" if found.z[best] > 0 else "avoid", found.shares[best]
        part = abs(share) / (self.n_rows - down)
        what = f"{part:.0%} of the rows {verb} the one {down} above" + f", moved by {right}" * (
            right != 0
        )
        one = Dependence(
            found.shares[[best]], 0.0, found.z[[best]] * (found.p < LEVEL), found.n_units
        )
        circumstance = "whole rows" if right == 0 and share > 0.9 * (self.n_rows - down) else "rows"
        return Pair(self.outcome, circumstance, what, "", one, effect=0.1)

    def correlated(self, circumstance: str, along: str, one: np.ndarray, two: np.ndarray) -> Pair:
        """Whether the outcome repeats from some positions to others of the same call or a later
        one, given by their numbers in the sample."""
        residuals, variance = self.outcomes - self.expected, self.expected * (1 - self.expected)
        products = residuals[one] * residuals[two]
        for stratum in self.strata:  # whose own share makes the outcomes in it differ
            correction = variance / np.maximum(1, np.bincount(stratum)[stratum] - 1)
            products += correction[two] * (stratum[one] == stratum[two])
        scores, totals = (
            np.bincount(self.calls[two], part, self.n_calls) for part in (products, variance[two])
        )
        return self.pair(
            circumstance,
            along,
            of_means((1 - self.mean) * scores[:, None], totals[:, None], self.mean),
        )

    def partners(self, moved: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of positions and of those that `moved` puts in their place, if these come
        before."""
        numbers = np.full(self.where.shape, -1)
        numbers[self.where] = np.arange(len(self.at))
        there = moved(numbers)
        used = (there >= 0) & (there < numbers)
        return there[used], numbers[used]


def next_of(group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of neighboring positions of the same group."""
    order = np.argsort(group, kind="stable")
    inside = group[order[:-1]] == group[order[1:]]
    return order[:-1][inside], order[1:][inside]


def selection(table: Table) -> Iterator[Pair]:
    """Everything that the selection of a position may depend on."""
    sample = Sample(table, "selected", "the share selected", table.eligible, table.selected)
    yield from sample.by_all()
    yield sample.by("position", "eighth of the window", eighths_of(table.eligible), 1)
    yield sample.by("id", "occurrences in the batch, in quarters of the mean:", table.occurrences)
    next_to = shifted(table.selected, 1, False) & table.eligible
    following = Sample(
        table, "selected", "the share selected after a selected one", next_to, table.selected
    )
    following.expected[:] = (
        following.mean
    )  # a window's own share is biased: its positions follow selected ones
    for period in GRIDS:
        columns = (np.arange(sample.width) % period)[None, None]
        found = following.by("grid", f"position, counted modulo {period}: number", columns)
        yield replace(found, effect=LEAST_IN_GRID * following.mean)
    mirrored = sample.partners(lambda numbers: numbers[..., ::-1])
    yield sample.correlated("mirror", "at the mirrored place of a selected one", *mirrored)
    before = sample.partners(
        lambda numbers: np.roll(numbers, 1, axis=0)
    )  # the last call is not before the first
    yield sample.correlated(
        "call before", "at the same place of the call after a selected one", *before
    )
    turned = sample.partners(lambda numbers: np.roll(numbers[..., ::-1], 1, axis=0))
    yield sample.correlated(
        "call before", "at the mirrored place of the call after a selected one", *turned
    )
    yield sample.neighbors()
    if sample.n_rows > 1:
        yield sample.rows()
    ids = table.originals[table.eligible]  # which may have rates of their own
    counts, beyond = np.bincount(ids), np.bincount(ids, sample.outcomes - sample.expected)
    sample.expected = sample.expected + (beyond / np.maximum(1, counts))[ids]
    yield from sample.by_equals()
    sample.strata.append(ids)
    one, two = next_of(sample.calls * (ids.max() + 1) + ids)
    often = (
        counts[ids[one]] >= 20
    )  # a rarer id may have its windows for itself, whose share is then its own
    pairs = one[often], two[often]
    yield sample.correlated("same id", "at the next occurrence of a selected id", *pairs)


def kinds(table: Table) -> Iterator[Pair]:
    """Everything that the kind of a selected position, [MASK], random or unchanged, may depend on."""
    for what, happens in (("[MASK]", table.masked), ("random", table.randomized)):
        sample = Sample(table, "kind", f"the share of {what}", table.selected, happens)
        if 0.005 < sample.mean < 0.995:
            yield from sample.by_all()
            yield from sample.by_equals()
            yield sample.by(
                "position",
                "eighth of the selected positions, number",
                eighths_of(table.selected),
                1,
            )
            yield sample.correlated("neighbors", "after another one", *next_of(sample.windows))
            ids = table.originals[table.selected]
            pairs = next_of(sample.calls * (ids.max() + 1) + ids)
            yield sample.correlated("same id", "at the next selected token of the same id", *pairs)
            before = shifted(table.selected.astype(int), 1, 0)
            yield sample.by("neighbors", "after a visible token|after a selected one", before)
            if sample.n_rows > 1:
                yield sample.rows()


def of_lengths(table: Table, name: str) -> Iterator[Pair]:
    """Tests of windows of other lengths: the selection by place and by row, and the kind by length
    in windows of at least 16 tokens. Rates may depend on the length, because counts are rounded; of
    the shortest windows, only the places are tested."""
    sample = Sample(
        table, "selected", f"the share selected in {name} windows", table.eligible, table.selected
    )
    order, counts = table.eligible.cumsum(2) - 1, table.eligible.sum(2, keepdims=True)
    yield sample.by("position", "token from the left, number", order.clip(0, PLACES), 1)
    yield sample.by(
        "position", "token from the right, number", (counts - 1 - order).clip(0, PLACES), 1
    )
    if name == "short":
        return
    yield sample.by("position", "eighth of the window", eighths_of(table.eligible), 1)
    yield sample.by(
        "row", f"row of {sample.n_rows}, number", np.arange(sample.n_rows)[None, :, None]
    )
    lengths = table.eligible.sum(2, keepdims=True)
    sample = Sample(
        table, "kind", "the share of [MASK]", table.selected & (lengths >= 16), table.masked
    )
    yield sample.by(
        "length", "in windows of 16 to 31 tokens|in longer ones", (lengths > 31).astype(int)
    )


def replacements(table: Table) -> Iterator[Pair]:
    """Everything that a random token may depend on: its original, its window, and the other random
    tokens."""
    n_calls, n_rows, width = table.inputs.shape
    ordinary = table.tokens.ordinary
    at = np.flatnonzero(table.randomized & np.isin(table.inputs, ordinary))
    n, calls, windows = len(ordinary), at // (n_rows * width), at // width
    if len(at) < 400 or n < 4:
        return
    tokens = table.inputs.ravel()[at]
    new, old, n_bins = np.searchsorted(ordinary, tokens), table.ranks.ravel()[at], min(BINS, n)
    for name, along, classes in (
        ("original", "the original's id class", old * n_bins // n),
        ("position", "eighth of the window", at % width * BINS // width),
        ("row", "eighth of the rows", windows % n_rows * BINS // n_rows),
        ("call", "call, counted modulo 2: number", calls % 2),
        ("other replacements", "class of the random token before", np.roll(new, 1) * n_bins // n),
    ):
        tested = []
        for each in range(n_bins):
            used = (classes != each) | (name != "original")  # never the original
            happens = (new * n_bins // n == each)[used].astype(float)
            tested.append(
                by_class(
                    calls[used],
                    classes[used],
                    happens,
                    np.full(len(happens), happens.mean()),
                    n_calls,
                )
            )
        worst = max(tested, key=lambda each: np.abs(each.z).max())
        yield Pair("replacement", name, "the share of one class of random tokens", along, worst)
    # Relations are compared with those to another random token, of another call, where they can
    # only be chance.
    other = np.roll(np.arange(len(at)), len(at) // 2)
    flat = np.where(table.eligible, table.originals, -1).ravel()
    for step, side in ((-1, "before"), (1, "after"), (-width, "in the row above")):
        here, there = (flat[(place + step) % len(flat)] == tokens for place in (at, at[other]))
        yield related(
            "neighbors", f"random tokens that equal the token {side}", here, there, calls, n_calls
        )
    texts = flat.reshape(-1, width)
    here, there = ((texts[of] == tokens[:, None]).sum(1) for of in (windows, windows[other]))
    is_original = flat[at[other]] == tokens  # which no random token of that window is
    yield related(
        "window", "random tokens occur in their window", here, there - is_original, calls, n_calls
    )
    yield by_frequency_in_batch(
        np.where(table.eligible, table.ranks, n).reshape(n_calls, -1), new, calls, n
    )
    chance = (tokens == tokens[other]).astype(float)
    differ = (new[other] != old).mean()  # two random tokens of the same original are never that one
    for name, what, group, by_chance in (
        ("other replacements", "the next random token is the same", windows, chance),
        ("original", "the same original gets the same random token", old, chance / differ),
        (
            "rows",
            "the next row has the same random token there",
            calls * width + at % width,
            chance,
        ),
        (
            "call",
            "the same place of a later call has the same random token",
            at % (n_rows * width),
            chance,
        ),
    ):
        one, two = next_of(group)
        yield related(name, what, tokens[one] == tokens[two], by_chance[one], calls[one], n_calls)


def by_frequency_in_batch(
    originals: np.ndarray, new: np.ndarray, calls: np.ndarray, n: int
) -> Pair:
    """Test whether random tokens, with the numbers `new` among `n`, are drawn from the tokens of
    their batch: whether they prefer what is more frequent in it than in the batch before, relative
    to a draw from it. `originals` are `[n_calls, n_positions]`."""

    def shares(ids: np.ndarray) -> np.ndarray:
        return np.bincount(ids, minlength=n + 1)[:n] / max(1, (ids < n).sum())

    scores, totals = np.zeros((2, len(originals), 1))
    for call, ids in enumerate(originals):
        own, drawn = shares(ids), new[calls == call]
        more = own - shares(originals[call - 1])
        scores[call], totals[call] = more[drawn].sum(), len(drawn) * own @ more
    what = "random tokens are drawn from the tokens of their batch"
    return Pair("replacement", "batch", what, "", of_means(scores, totals), effect=0.3, rises=True)


def related(
    circumstance: str,
    what: str,
    here: np.ndarray,
    there: np.ndarray,
    calls: np.ndarray,
    n_calls: int,
) -> Pair:
    """Test that a relation of random tokens holds as often `here` as `there`, where it can only be
    chance."""
    counts, by_chance = (np.bincount(calls, each, n_calls)[:, None] for each in (here, there))
    totals = np.bincount(calls, minlength=n_calls)[:, None]
    mean = max(by_chance.sum(), 0.5) / max(1, totals.sum())
    enough = counts.sum() + by_chance.sum() >= RARE
    return Pair(
        "replacement", circumstance, what, "", of_means(counts - by_chance, totals, mean, enough)
    )


def battery(table: Table) -> list[Pair]:
    """All pairs of the main text."""
    return [*selection(table), *kinds(table), *replacements(table)]
