"""Dependences of an outcome are found and named, including those that no bug of the museum has."""

import numpy as np
import pytest
import torch

from auditing.findings import Verdict
from auditing.masks.audit import audit_masks
from auditing.masks.battery import BINS, battery
from auditing.masks.pairs import EFFECTS, PERIODS
from auditing.masks.table import Table
from auditing.masks.tokens import TokenIds
from auditing.statistics import TESTS_PER_AUDIT, by_class, of_units
from auditing.tests.conftest import mostly_slow
from auditing.tests.museum.dependences import BATCH_BUGS, BUGS
from auditing.tests.museum.exhibit import (
    CLS,
    MASK,
    N_ORDINARY,
    N_TOKENS,
    PAD,
    SEP,
    TensorMasker,
    ordinary,
    result,
)

# bug: a recipe that has it
ONLY_DIFFERENT = {"selected-by-id": "frequency", "selected-by-batch": "rates per batch"}


NEED_ALL_WINDOWS = {"kind-by-window", "replacement-by-neighbors", "selected-by-call"}
NEED_ALL_WINDOWS |= {"replacement-by-other-replacements", "position-dependent"}


# One example of each circumstance that the museum's fast tests do not have.
FAST = {
    "kind by neighbor",
    "rate by parity",
    "rate by row",
    "function of the id",
    "row repeated",
}
FAST_BATCHES = {"attention-at-padding", "masks-in-inputs"}


@pytest.mark.parametrize(("mask", "bug"), mostly_slow(BUGS, FAST))
def test_a_dependence_is_found(request, mask, bug):
    if bug not in NEED_ALL_WINDOWS:
        request.getfixturevalue("few_windows")
    torch.manual_seed(5)
    findings = [
        each
        for each in audit_masks(TensorMasker(mask), workers=0).findings
        if each.bug == bug
    ]
    recipe = ONLY_DIFFERENT.get(bug)
    (found,) = {(each.verdict, each.recipes) for each in findings}
    assert found[0] == (Verdict.DIFFERS if recipe else Verdict.BROKEN)
    assert recipe is None or recipe in found[1]
    if bug == "selected-by-row":  # a dependence is described by its numbers
        (finding,) = findings
        assert finding.found.startswith("the share selected rises from 10.")
        assert len(finding.chart) == 32


@pytest.mark.usefixtures("few_windows")
@pytest.mark.parametrize(
    ("bug", "target"),
    mostly_slow(
        {bug: (bug, target) for bug, target in BATCH_BUGS.items()}, FAST_BATCHES
    ),
)
def test_what_else_a_call_returns_is_checked(bug, target):
    findings = audit_masks(target, workers=0).findings
    assert {
        finding.bug for finding in findings if finding.verdict == Verdict.BROKEN
    } == {bug}


def static_spans(x):
    """Spans of ten tokens, the same for the same text."""
    draws = [
        torch.rand(len(row), generator=torch.Generator().manual_seed(int(row.sum())))
        for row in x
    ]
    begun = (torch.stack(draws) < 0.017).long().cumsum(1)
    before = torch.nn.functional.pad(begun, (10, 0))[:, : x.shape[1]]
    return result(x, (begun > before) & ordinary(x))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_passes_that_repeat_each_other_are_not_independent(seed):
    findings = audit_masks(TensorMasker(static_spans), seed=seed).findings
    assert {finding.bug for finding in findings if finding.verdict != Verdict.OK} == {
        "static-masks"
    }


SHAPE = 128, 8, 64


def random_text(rng: np.random.Generator) -> np.ndarray:
    ids = rng.integers(N_ORDINARY, size=SHAPE)
    ids[:, ::2, 0] = CLS
    ids[:, ::2, -1] = SEP
    return ids


def table_of(
    rng, originals: np.ndarray, *, chosen=None, draw=None, random=None
) -> Table:
    """BERT's recipe without a masker: of the positions `chosen`, with the kinds by `draw` and the
    random tokens `random`, if these are not drawn independently."""
    selected = (rng.random(SHAPE) < 0.15 if chosen is None else chosen) & (
        originals < N_ORDINARY
    )
    draw = rng.random(SHAPE) if draw is None else draw
    random = rng.integers(N_ORDINARY, size=SHAPE) if random is None else random
    replaced = np.where(draw < 0.8, MASK, np.where(draw < 0.9, random, originals))
    tokens = TokenIds(N_TOKENS, MASK, PAD, (PAD, MASK, CLS, SEP), (CLS, SEP))
    source = np.arange(originals.size).reshape(SHAPE)
    everywhere = np.ones(SHAPE, dtype=bool)
    inputs = np.where(selected, replaced, originals)
    labels = np.where(selected, originals, -100)
    return Table(
        originals,
        inputs,
        labels,
        everywhere,
        source,
        tokens,
        ~everywhere,
        mask=MASK,
        ignored=-100,
    )


def mirrored_selection(rng, ids):
    free = rng.random(SHAPE) < 0.15
    chosen = np.concatenate([free[..., :32], free[..., 31::-1]], axis=2)
    return table_of(rng, ids, chosen=chosen)


def selection_unlike_the_call_before(rng, ids):
    free = rng.random(SHAPE) < 0.15
    chosen = np.concatenate([free[:1], free[1:] & ~free[:-1]])
    return table_of(rng, ids, chosen=chosen)


def selection_by_id(rng, ids):
    calls = np.arange(128)[:, None, None]
    is_chosen = rng.random((128, N_TOKENS)) < 0.15
    return table_of(rng, ids, chosen=is_chosen[calls, ids])


def selection_by_batch(rng, ids):
    share = 0.15 + 0.03 * np.sin(np.arange(128))[:, None, None]
    return table_of(rng, ids, chosen=rng.random(SHAPE) < share)


def selection_of_blocks(rng, ids):
    free = rng.random(SHAPE) < 0.15
    return table_of(rng, ids, chosen=np.repeat(free[..., ::2], 2, axis=2))


def kinds_by_column(rng, ids):
    column = rng.random((128, 1, 64))
    return table_of(rng, ids, draw=np.broadcast_to(column, SHAPE))


def kinds_by_neighbor(rng, ids):
    free = rng.random(SHAPE) < 0.15
    scale = np.where(np.roll(free, 1, 2), 0.7, 1)
    return table_of(rng, ids, chosen=free, draw=rng.random(SHAPE) * scale)


def kinds_by_id(rng, ids):
    calls = np.arange(128)[:, None, None]
    draws = rng.random((128, N_TOKENS))
    return table_of(rng, ids, draw=draws[calls, ids])


def replacements_by_column(rng, ids):
    column = rng.random((128, 1, 64))
    same = np.broadcast_to((N_ORDINARY * column).astype(int), SHAPE)
    return table_of(rng, ids, draw=np.full(SHAPE, 0.85), random=same)


def replacements_by_neighbor(rng, ids):
    return table_of(rng, ids, random=np.roll(ids, 1, 1))


def replacements_from_the_batch(rng, ids):
    shuffled = rng.permuted(ids.reshape(128, -1), axis=1).reshape(SHAPE)
    return table_of(rng, ids, random=shuffled % N_ORDINARY)


def replacements_of_the_first_call(rng, ids):
    of_a_call = rng.integers(N_ORDINARY, size=SHAPE[1:])
    return table_of(rng, ids, random=np.broadcast_to(of_a_call, SHAPE))


# tables in which an outcome depends on one thing
PLANTED = {
    "selected mirror": mirrored_selection,
    "selected call before": selection_unlike_the_call_before,
    "selected same id": selection_by_id,
    "selected batch": selection_by_batch,
    "selected grid": selection_of_blocks,
    "kind rows": kinds_by_column,
    "kind neighbors": kinds_by_neighbor,
    "kind same id": kinds_by_id,
    "replacement rows": replacements_by_column,
    "replacement neighbors": replacements_by_neighbor,
    "replacement batch": replacements_from_the_batch,
    "replacement call": replacements_of_the_first_call,
}


@pytest.mark.parametrize("pair", PLANTED)
def test_the_battery_finds_a_dependence(pair):
    rng = np.random.default_rng(11)
    table = PLANTED[pair](rng, random_text(rng))
    dependences = [each for each in battery(table) if each.is_found]
    surest = sorted(dependences, key=lambda each: each.z, reverse=True)
    n_causes = 2 if pair == "selected grid" else 1  # blocks are runs too

    assert pair in [" ".join(each.key) for each in surest[:n_causes]]


@pytest.mark.slow
def test_p_values_are_those_of_chance():
    """Of independent draws, 5% of the tests have a p-value below 5%, or fewer, as several classes
    share a test."""
    rng = np.random.default_rng(7)
    p_values = []
    for _ in range(12):
        table = table_of(rng, random_text(rng))
        p_values += [pair.found.p for pair in battery(table)]

    p = np.array(p_values)
    # Of five pairs of replacements, the worst of 8 tests is shown; 12 tests are of lengths, 8 of
    # amounts.
    assert len(p) == 12 * (TESTS_PER_AUDIT - 5 * (BINS - 1) - 12 - 8)
    assert (p < 0.05).mean() < 0.06
    assert (p < 0.5).mean() > 0.2
    assert p.min() > 1e-5


@pytest.mark.parametrize("period", PERIODS)
def test_every_period_can_be_found(period):
    """Of 256 calls, the m of a class have |z| <= m / sqrt(m - m^2 / 256), whatever their share is."""
    number = np.arange(256)
    found = of_units(
        np.where(number % period == 0, 900.0, 600.0),
        np.full(256, 4_000.0),
        number % period,
    )
    assert found.exceeds(EFFECTS["selected"] * found.mean)


@pytest.mark.parametrize(("n_events", "is_found"), [(41, False), (20, True)])
def test_rare_events_are_not_surer_the_fewer_they_are(n_events, is_found):
    """In one of 16 classes there are `n_events` instead of 80. Chance makes them 41 once in 20,000
    tables, more often than the level of a test. Measured by their own spread, it would be rarer
    than once in a million."""
    counts = np.array([n_events, *[80] * 15])[:, None]
    happens = (
        np.random.default_rng(3).permuted(np.tile(np.arange(1275), (16, 1)), axis=1)
        < counts
    )
    outcomes = happens.ravel().astype(float)
    calls = np.arange(happens.size) % 256
    expected = np.full(happens.size, outcomes.mean())
    found = by_class(calls, np.repeat(np.arange(16), 1275), outcomes, expected, 256)
    assert found.exceeds(0.1 * found.mean) == is_found
