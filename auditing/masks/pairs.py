"""Pairs of an outcome and a circumstance, and the sample of positions on which they are tested."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from auditing.masks.table import CLASSES, Table, shifted
from auditing.statistics import LEVEL, Array, Dependence, by_class, of_means, of_units

# The smallest effects to report. That of a kind is absolute, the others are relative to the mean.
EFFECTS = {"selected": 0.06, "kind": 0.02, "replacement": 0.1}
# The smallest correlation to report. Spans across thirds of a window make half of it.
LEAST_IN_WINDOW = 0.005
LEAST_IN_BATCH_OF_KINDS = 0.1
LAGS = 40  # tokens
# Of calls. A class of a longer period has so few calls that their spread hides it.
PERIODS = (2, 3, 4, 5, 6, 7, 8, 10)


@dataclass(frozen=True, eq=False)
class Pair:
    """One tested pair. `outcome` and `circumstance` name its entry in the catalogue and in a
    recipe."""

    outcome: str
    circumstance: str
    what: str  # the share that is measured, in words
    along: str  # the classes, as "row", or each of two, as "at even ids|at odd ids"; may be empty
    found: Dependence
    first: int = 0  # the number of the first class
    # the smallest to report; by default that of the outcome
    effect: float | None = None
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
        the smallest effect to report."""
        if self.rises and np.nansum(self.found.z) <= 0:
            return False
        effect = self.effect
        if effect is None:
            effect = EFFECTS[self.outcome]
            if self.outcome != "kind":
                effect *= abs(self.found.mean)
        return self.found.exceeds(effect)

    @property
    def z(self) -> float:
        """The largest |z| by the observed spread."""
        return float(
            np.maximum(np.abs(self.found.z), np.abs(self.found.raw)).max(initial=0.0)
        )

    def text(self) -> str:
        """The dependence in plain words with numbers."""
        return f"{self.what}{self._numbers()}"

    def _numbers(self) -> str:
        shares = self.found.shares.clip(0)
        used = np.flatnonzero(np.isfinite(shares))
        low = used[shares[used].argmin()]
        high = used[shares[used].argmax()]
        names = self.along.split("|")
        if not self.along:
            if not self.found.mean:
                return ""
            ratio = shares[low] / max(self.found.mean, 1e-9)
            return f": {ratio:.2g} times as often as by chance"
        if len(used) == 1:
            return f": {shares[low]:.1%} {names[low] if len(names) > 1 else self.along}"
        if self.found.never and len(used) > 2:
            return f": never at {self.along} {self._never()}"
        if ":" not in self.along and is_monotonic(used, shares[used]):
            eighth = max(1, len(used) // 8)
            begin = shares[used[:eighth]].mean()
            end = shares[used[-eighth:]].mean()
            verb = "rises" if end > begin else "falls"
            along = self.along.removesuffix(", number")
            return f" {verb} from {begin:.1%} to {end:.1%} with the {along}"
        if len(names) > 1:
            return f": {shares[low]:.1%} {names[low]}, {shares[high]:.1%} {names[high]}"
        lowest = f"{shares[low]:.1%} at {self.along} {low + self.first}"
        return f": {lowest}, {shares[high]:.1%} at {high + self.first}"

    def _never(self) -> str:
        """The numbers of the classes in which the outcome does not happen, four at most."""
        numbers = [str(number + self.first) for number in self.found.never]
        text = ", ".join(numbers[:4])
        return f"{text} and {len(numbers) - 4} more" if len(numbers) > 4 else text


def is_monotonic(classes: Array, shares: Array) -> bool:
    """Whether shares rise or fall with the number of the class."""
    return len(classes) > 4 and abs(np.corrcoef(classes, shares)[0, 1]) > 0.85


class Sample:
    """Positions at which an outcome is observed, and the share that is expected there if nothing
    else matters: that of its own window, so that rates may differ by window, or that of its
    call."""

    def __init__(
        self, table: Table, outcome: str, what: str, where: Array, happens: Array
    ):
        self.table = table
        self.outcome = outcome
        self.what = what
        self.where = where
        self.at = np.flatnonzero(where)
        self.outcomes = happens[where].astype(float)
        self.n_calls, self.n_rows, self.width = where.shape
        self.windows = self.at // self.width
        self.calls = self.windows // self.n_rows
        self.mean = float(self.outcomes.mean()) if len(self.at) else 0.0
        self.expected = self.mean_in(self.windows)
        self.strata = [self.windows]  # whose shares `expected` holds

    def mean_in(self, strata: Array) -> Array:
        """The outcome's share in the stratum of each position."""
        counts = np.bincount(strata)
        return (np.bincount(strata, self.outcomes) / np.maximum(1, counts))[strata]

    @property
    def residuals(self) -> Array:
        return self.outcomes - self.expected

    @property
    def variance(self) -> Array:
        return self.expected * (1 - self.expected)

    def spread(self, values: Array) -> Array:
        """Values of the positions as `[n_calls, rows, width]`, 0 elsewhere."""
        everywhere = np.zeros(self.where.shape)
        everywhere[self.where] = values
        return everywhere

    def pair(
        self, circumstance: str, along: str, found: Dependence, first: int = 0
    ) -> Pair:
        """A tested pair of the outcome."""
        return Pair(self.outcome, circumstance, self.what, along, found, first)

    def by(self, circumstance: str, along: str, classes: Array, first: int = 0) -> Pair:
        """Test independence of the classes of positions, `[n_calls, rows, width]`, or of windows,
        `[..., 1]`."""
        of_positions = classes.shape[-1] > 1
        expected = self.expected if of_positions else self.mean_in(self.calls)
        flat = np.broadcast_to(classes, self.where.shape)[self.where]
        found = by_class(self.calls, flat, self.outcomes, expected, self.n_calls)
        return self.pair(circumstance, along, found, first)

    def by_all(self) -> Iterator[Pair]:
        """The circumstances of every outcome."""
        table = self.table
        ids = table.ids
        n_classes = min(self.width, 2 * CLASSES)
        columns = np.arange(self.width) * n_classes // self.width
        yield self.by("position", "position", columns[None, None])
        yield self.by("id", "id class", ids)
        yield self.by("id parity", "at even ids|at odd ids", table.originals % 2)
        yield self.by("token before", "id class", shifted(ids, 1, ids.max() + 1))
        yield self.by("token after", "id class", shifted(ids, -1, ids.max() + 1))
        yield self.by("row", "row", np.arange(self.n_rows)[None, :, None])
        has_special = (table.real & ~table.eligible).any(2, keepdims=True).astype(int)
        yield self.by(
            "special", "in windows without special tokens|in others", has_special
        )
        yield from self.by_call()
        yield self.by_batch()
        yield self.by_window()

    def by_call(self) -> Iterator[Pair]:
        """Whether the outcome drifts from call to call, or has a period."""
        parts = np.bincount(self.calls, self.outcomes, self.n_calls)
        totals = np.bincount(self.calls, minlength=self.n_calls)
        number = np.arange(self.n_calls)
        eighths = of_units(parts, totals, 8 * number // self.n_calls)
        yield self.pair("call", "eighth of the calls", eighths, 1)
        for period in PERIODS:
            along = f"call, counted modulo {period}: number"
            yield self.pair("call", along, of_units(parts, totals, number % period))

    def by_equals(self) -> Iterator[Pair]:
        """Whether the outcome depends on equal tokens: the one before, or another in the window."""
        ids = self.table.originals
        repeats = (shifted(ids, 1, -1) == ids).astype(int)
        yield self.by("token before", "after another token|after an equal one", repeats)
        along = "where the window has no equal token|where it has one"
        yield self.by("same id", along, self.table.recurring)

    def by_batch(self) -> Pair:
        """Whether each batch has its own share: the correlation between its windows."""
        effect = LEAST_IN_BATCH_OF_KINDS
        if self.outcome == "selected":
            # In batches of equally long windows, rounding changes the rate by up to half a label
            # per window.
            counts = np.bincount(self.windows)
            rounding = 0.5 / max(1, counts[counts > 0].mean())
            effect = (
                max(EFFECTS["selected"] * self.mean, rounding) ** 2 / self.mean_variance
            )
        return self.correlated_parts("batch", self.windows, self.n_rows, effect)

    def by_window(self) -> Pair:
        """Whether each window has its own share: the correlation between its thirds."""
        thirds = self.windows * 3 + self.at % self.width * 3 // self.width
        effect = LEAST_IN_BATCH_OF_KINDS if self.outcome == "kind" else LEAST_IN_WINDOW
        return self.correlated_parts("window", thirds, 3, effect)

    @property
    def mean_variance(self) -> float:
        return max(1e-9, self.mean * (1 - self.mean))

    def correlated_parts(
        self, circumstance: str, parts: Array, n_parts: int, effect: float
    ) -> Pair:
        """Whether the outcome is correlated between the parts, `n_parts` at a time."""
        size = self.n_calls * self.n_rows * (3 if circumstance == "window" else 1)
        sums = np.bincount(parts, self.outcomes - self.mean, size)
        counts = np.bincount(parts, minlength=size)
        scores = products_of_pairs(sums.reshape(self.n_calls, -1, n_parts))
        pairs = products_of_pairs(counts.reshape(self.n_calls, -1, n_parts))
        found = of_means(scores, self.mean_variance * pairs)
        deviation = 100 * max(0.0, found.shares[0] * self.mean_variance) ** 0.5
        what = (
            f"{self.what} varies by ± {deviation:.1f} percentage points"
            f" from {circumstance} to {circumstance}"
        )
        return Pair(
            self.outcome, circumstance, what, "", found, effect=effect, rises=True
        )

    def neighbors(self) -> Pair:
        """Whether the outcome happens next to where it happens: at each distance between tokens of
        a window."""
        size = 2 * self.width
        residuals = np.fft.rfft(self.spread(self.residuals), size)
        there = np.fft.rfft(self.where, size)
        spread = np.fft.rfft(self.spread(self.variance), size)
        # Of a fixed number of outcomes in a window, each makes the others less likely.
        others = np.maximum(2, self.where.sum(2, keepdims=True)) - 1
        n_lags = min(LAGS, self.width - 2)

        def at_lags(one: Array, other: Array) -> Array:
            """Products of positions at each distance, summed by call."""
            products = np.fft.irfft((one * other.conj()).sum(1), size)
            return products[:, 1 : n_lags + 1]

        scores = at_lags(residuals, residuals) + at_lags(spread / others, there)
        totals = at_lags(spread, there).round(6)
        found = of_means((1 - self.mean) * scores, totals, self.mean)
        what = f"{self.what} next to another one"
        return Pair(self.outcome, "neighbors", what, "distance", found, 1)

    def rows(self) -> Pair:
        """Whether rows of a call repeat, or avoid, each other's outcome, at any distance of rows
        and columns: the autocorrelation in both."""
        width = self.width
        size = (2 * self.n_rows, width)
        spectrum = np.fft.rfft2(self.spread(self.residuals), s=size)
        products = np.fft.irfft2(np.abs(spectrum) ** 2, s=size)[:, 1 : self.n_rows]
        one_row = np.bincount(self.calls, self.variance, self.n_calls) / self.n_rows
        found = of_means(products.reshape(self.n_calls, -1), one_row[:, None])

        best = int(np.abs(found.z).argmax())
        share = found.shares[best]
        down = best // width + 1
        right = (best % width + width // 2) % width - width // 2
        verb = "repeat" if found.z[best] > 0 else "avoid"
        n_pairs = self.n_rows - down
        what = f"rows {verb} another row's mask ({abs(share) / n_pairs:.0%} that of the row {down} above"
        if right:
            what += f", moved by {right}"
        what += ")"
        circumstance = "whole rows" if right == 0 and share > 0.9 * n_pairs else "rows"
        z = found.z[[best]] * (found.p < LEVEL)
        one = Dependence(found.shares[[best]], 0.0, z, found.n_units)
        return Pair(self.outcome, circumstance, what, "", one, effect=0.1)

    def correlated(self, circumstance: str, along: str, one: Array, two: Array) -> Pair:
        """Whether the outcome repeats from some positions to others of the same call or a later
        one, given by their numbers in the sample."""
        residuals = self.residuals
        variance = self.variance
        products = residuals[one] * residuals[two]
        for stratum in self.strata:  # whose own share makes the outcomes in it differ
            correction = variance / np.maximum(1, np.bincount(stratum)[stratum] - 1)
            products += correction[two] * (stratum[one] == stratum[two])

        calls = self.calls[two]
        scores = np.bincount(calls, products, self.n_calls)[:, None]
        totals = np.bincount(calls, variance[two], self.n_calls)[:, None]
        found = of_means((1 - self.mean) * scores, totals, self.mean)
        return self.pair(circumstance, along, found)

    def partners(self, moved: Callable[[Array], Array]) -> tuple[Array, Array]:
        """The numbers of positions and of those that `moved` puts in their place, if these come
        before."""
        numbers = np.full(self.where.shape, -1)
        numbers[self.where] = np.arange(len(self.at))
        there = moved(numbers)
        used = (there >= 0) & (there < numbers)
        return there[used], numbers[used]


def products_of_pairs(values: Array) -> Array:
    """The sum of the products of different parts, `[n_calls, 1]`, of `[n_calls, n, n_parts]`."""
    return (values.sum(2) ** 2 - (values**2).sum(2)).sum(1, keepdims=True)


def next_of(group: Array) -> tuple[Array, Array]:
    """The numbers of neighboring positions of the same group."""
    order = np.argsort(group, kind="stable")
    inside = group[order[:-1]] == group[order[1:]]
    return order[:-1][inside], order[1:][inside]
