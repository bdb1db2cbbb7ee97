"""The battery: the tests of independence for every outcome and its circumstances."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from auditing.masks.pairs import Pair, Sample, next_of
from auditing.masks.table import Table, eighths_of, shifted
from auditing.statistics import Array, by_class, of_means

GRIDS = (3, 4)  # positions; 4 also shows blocks of 2
# Of the mean. Words begin at the first position and ends cut spans, so both make smaller grids.
LEAST_IN_GRID = 0.35
BINS = 8  # of replacements and of their circumstances
PLACES = 8  # at each end of windows of other lengths, each a class; all others are the last class
RARE = 120  # relations that are observed less often are not tested
FEWEST_REPLACEMENTS = 400
# A rarer id may have its windows for itself, whose share is then its own.
FEWEST_OCCURRENCES = 20


def battery(table: Table) -> list[Pair]:
    """All pairs of the main text."""
    return [*selection(table), *kinds(table), *replacements(table)]


def selection(table: Table) -> Iterator[Pair]:
    """The circumstances of the selection of a position."""
    sample = Sample(
        table, "selected", "the share selected", table.eligible, table.selected
    )
    yield from sample.by_all()
    yield sample.by("position", "eighth of the window", eighths_of(table.eligible), 1)
    yield sample.by(
        "id", "occurrences in the batch, in quarters of the mean:", table.occurrences
    )
    yield from on_grids(table)

    mirrored = sample.partners(lambda numbers: numbers[..., ::-1])
    yield sample.correlated(
        "mirror", "at the mirrored place of a selected one", *mirrored
    )
    # `partners` leaves out the last call, which `roll` puts before the first.
    before = sample.partners(lambda numbers: np.roll(numbers, 1, axis=0))
    along = "at the same place of the call after a selected one"
    yield sample.correlated("call before", along, *before)
    turned = sample.partners(lambda numbers: np.roll(numbers[..., ::-1], 1, axis=0))
    along = "at the mirrored place of the call after a selected one"
    yield sample.correlated("call before", along, *turned)
    yield sample.neighbors()
    if sample.n_rows > 1:
        yield sample.rows()

    # Ids may have rates of their own.
    ids = table.originals[table.eligible]
    counts = np.bincount(ids)
    beyond = np.bincount(ids, sample.residuals)
    sample.expected = sample.expected + (beyond / np.maximum(1, counts))[ids]
    yield from sample.by_equals()
    sample.strata.append(ids)
    one, two = next_of(sample.calls * (ids.max() + 1) + ids)
    often = counts[ids[one]] >= FEWEST_OCCURRENCES
    along = "at the next occurrence of a selected id"
    yield sample.correlated("same id", along, one[often], two[often])


def on_grids(table: Table) -> Iterator[Pair]:
    """Whether blocks of selected positions begin at multiples of a number."""
    where = shifted(table.selected, 1, False) & table.eligible
    what = "the share selected after a selected one"
    sample = Sample(table, "selected", what, where, table.selected)
    # A window's own share is biased: its positions follow selected ones.
    sample.expected[:] = sample.mean
    for period in GRIDS:
        columns = (np.arange(sample.width) % period)[None, None]
        pair = sample.by("grid", f"position, counted modulo {period}: number", columns)
        yield replace(pair, effect=LEAST_IN_GRID * sample.mean)


def kinds(table: Table) -> Iterator[Pair]:
    """The circumstances of the kind of a selected position: [MASK], random or unchanged."""
    for what, happens in (("[MASK]", table.masked), ("random", table.randomized)):
        sample = Sample(table, "kind", f"the share of {what}", table.selected, happens)
        if 0.005 < sample.mean < 0.995:
            yield from of_kind(sample)


def of_kind(sample: Sample) -> Iterator[Pair]:
    """The circumstances of one kind."""
    selected = sample.table.selected
    yield from sample.by_all()
    yield from sample.by_equals()
    along = "eighth of the selected positions, number"
    yield sample.by("position", along, eighths_of(selected), 1)
    yield sample.correlated("neighbors", "after another one", *next_of(sample.windows))
    ids = sample.table.originals[selected]
    pairs = next_of(sample.calls * (ids.max() + 1) + ids)
    yield sample.correlated(
        "same id", "at the next selected token of the same id", *pairs
    )
    before = shifted(selected.astype(int), 1, 0)
    yield sample.by("neighbors", "after a visible token|after a selected one", before)
    if sample.n_rows > 1:
        yield sample.rows()


def of_lengths(table: Table, name: str) -> Iterator[Pair]:
    """The pairs of a text with windows of other lengths: the selection by place and by row, and the
    kind by length in windows of at least 16 tokens.

    Rates may depend on the length, because counts are rounded. Of the shortest windows, only the
    places are tested.
    """
    what = f"the share selected in {name} windows"
    sample = Sample(table, "selected", what, table.eligible, table.selected)
    lengths = table.eligible.sum(2, keepdims=True)
    from_left = table.eligible.cumsum(2) - 1
    from_right = lengths - 1 - from_left
    for side, order in (("left", from_left), ("right", from_right)):
        yield sample.by(
            "position", f"token from the {side}, number", order.clip(0, PLACES), 1
        )
    if name == "short":
        return
    yield sample.by("position", "eighth of the window", eighths_of(table.eligible), 1)
    rows = np.arange(sample.n_rows)[None, :, None]
    yield sample.by("row", f"row of {sample.n_rows}, number", rows)
    where = table.selected & (lengths >= 16)
    sample = Sample(table, "kind", "the share of [MASK]", where, table.masked)
    is_longer = (lengths > 31).astype(int)
    yield sample.by("length", "in windows of 16 to 31 tokens|in longer ones", is_longer)


def replacements(table: Table) -> Iterator[Pair]:
    """The circumstances of a random token: its original, its window, other random tokens."""
    drawn = Drawn.of(table)
    if len(drawn.at) >= FEWEST_REPLACEMENTS and drawn.n_ordinary >= 4:
        yield from drawn.by_classes()
        yield from drawn.in_window()
        yield drawn.by_frequency_in_batch()
        yield from drawn.of_each_other()


@dataclass(frozen=True)
class Drawn:
    """The random tokens of a table: arrays `[n_drawn]`."""

    table: Table
    at: Array  # flat places
    tokens: Array
    new: Array  # the numbers of the tokens among the ordinary ones
    old: Array  # those of their originals
    calls: Array
    windows: Array

    @classmethod
    def of(cls, table: Table) -> "Drawn":
        _, n_rows, width = table.inputs.shape
        at = np.flatnonzero(
            table.randomized & np.isin(table.inputs, table.tokens.ordinary)
        )
        tokens = table.inputs.ravel()[at]
        new = np.searchsorted(table.tokens.ordinary, tokens)
        old = table.ranks.ravel()[at]
        return cls(table, at, tokens, new, old, at // (n_rows * width), at // width)

    @property
    def n_ordinary(self) -> int:
        return len(self.table.tokens.ordinary)

    @property
    def others(self) -> Array:
        """The number of another random token of another call, for each one. Relations to it can
        only be chance, so other relations are compared with them."""
        n_drawn = len(self.at)
        return np.roll(np.arange(n_drawn), n_drawn // 2)

    @property
    def text(self) -> Array:
        """The ordinary tokens at all places, -1 elsewhere; flat."""
        return np.where(self.table.eligible, self.table.originals, -1).ravel()

    def by_classes(self) -> Iterator[Pair]:
        """Whether the class of a random token depends on classes of something else."""
        _, n_rows, width = self.table.inputs.shape
        n_bins = min(BINS, self.n_ordinary)
        of_original = self.old * n_bins // self.n_ordinary
        of_token = self.new * n_bins // self.n_ordinary
        of_row = self.windows % n_rows * BINS // n_rows
        of_column = self.at % width * BINS // width
        of_token_before = np.roll(self.new, 1) * n_bins // self.n_ordinary

        for name, along, classes in (
            ("original", "the original's id class", of_original),
            ("position", "eighth of the window", of_column),
            ("row", "eighth of the rows", of_row),
            ("call", "call, counted modulo 2: number", self.calls % 2),
            ("other replacements", "class of the random token before", of_token_before),
        ):
            tested = []
            for number in range(n_bins):
                used = np.full(len(classes), True)
                if name == "original":  # a random token is never its original
                    used = classes != number
                happens = (of_token == number)[used].astype(float)
                expected = np.full(len(happens), happens.mean())
                units = self.calls[used]
                n_calls = len(self.table.inputs)
                tested.append(
                    by_class(units, classes[used], happens, expected, n_calls)
                )
            worst = max(tested, key=lambda each: np.abs(each.z).max())
            yield Pair(
                "replacement",
                name,
                "the share of one class of random tokens",
                along,
                worst,
            )

    def in_window(self) -> Iterator[Pair]:
        """Whether random tokens are like the tokens of the text around them."""
        width = self.table.inputs.shape[2]
        text = self.text
        other = self.others

        for distance, side in (
            (-1, "before"),
            (1, "after"),
            (-width, "in the row above"),
        ):
            here = text[(self.at + distance) % len(text)] == self.tokens
            there = text[(self.at[other] + distance) % len(text)] == self.tokens
            what = f"random tokens that equal the token {side}"
            yield self.related("neighbors", what, here, there)

        texts = text.reshape(-1, width)
        tokens = self.tokens[:, None]
        here = (texts[self.windows] == tokens).sum(1)
        there = (texts[self.windows[other]] == tokens).sum(1)
        # no random token of that window is that
        is_original = text[self.at[other]] == self.tokens
        what = "random tokens occur in their window"
        yield self.related("window", what, here, there - is_original)

    def by_frequency_in_batch(self) -> Pair:
        """Whether random tokens are drawn from the tokens of their batch: whether they prefer what
        is more frequent in it than in the batch before, relative to a draw from it."""
        n = self.n_ordinary
        n_calls = len(self.table.inputs)
        originals = np.where(self.table.eligible, self.table.ranks, n).reshape(
            n_calls, -1
        )
        counts = np.stack([np.bincount(ids, minlength=n + 1)[:n] for ids in originals])
        shares = counts / np.maximum(1, (originals < n).sum(1, keepdims=True))
        scores = np.zeros((n_calls, 1))
        totals = np.zeros((n_calls, 1))

        for call in range(n_calls):
            more = shares[call] - shares[call - 1]
            drawn = self.new[self.calls == call]
            scores[call] = more[drawn].sum()
            totals[call] = len(drawn) * shares[call] @ more

        what = "random tokens are drawn from the tokens of their batch"
        found = of_means(scores, totals)
        return Pair("replacement", "batch", what, "", found, effect=0.3, rises=True)

    def of_each_other(self) -> Iterator[Pair]:
        """Whether random tokens equal each other."""
        _, n_rows, width = self.table.inputs.shape
        other = self.others
        chance = (self.tokens == self.tokens[other]).astype(float)
        # Two random tokens of the same original are never that one.
        differ = (self.new[other] != self.old).mean()
        columns = self.calls * width + self.at % width
        places = self.at % (n_rows * width)

        for name, what, group, by_chance in (
            (
                "other replacements",
                "the next random token is the same",
                self.windows,
                chance,
            ),
            (
                "original",
                "the same original gets the same random token",
                self.old,
                chance / differ,
            ),
            ("rows", "the next row has the same random token there", columns, chance),
            (
                "call",
                "the same place of a later call has the same random token",
                places,
                chance,
            ),
        ):
            one, two = next_of(group)
            is_equal = self.tokens[one] == self.tokens[two]
            yield self.related(name, what, is_equal, by_chance[one], self.calls[one])

    def related(
        self,
        circumstance: str,
        what: str,
        here: Array,
        there: Array,
        calls: Array | None = None,
    ) -> Pair:
        """Test that a relation of random tokens holds as often `here` as `there`, where it can only
        be chance."""
        calls = self.calls if calls is None else calls
        n_calls = len(self.table.inputs)
        counts = np.bincount(calls, here, n_calls)[:, None]
        by_chance = np.bincount(calls, there, n_calls)[:, None]
        totals = np.bincount(calls, minlength=n_calls)[:, None]
        mean = max(by_chance.sum(), 0.5) / max(1, totals.sum())
        is_enough = counts.sum() + by_chance.sum() >= RARE
        found = of_means(counts - by_chance, totals, mean, is_enough)
        return Pair("replacement", circumstance, what, "", found)
