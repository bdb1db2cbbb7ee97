"""What an outcome depends on is found and named, also where no bug of the museum is like it."""

import numpy as np
import pytest
import torch

from auditing.finding import Verdict
from auditing.masks.audit import audit_masks
from auditing.masks.battery import battery
from auditing.masks.table import Table
from auditing.masks.tokens import TokenIds
from tests.audit.dependences import BATCH_BUGS, BUGS
from tests.audit.museum.exhibit import CLS, MASK, N_ORDINARY, N_TOKENS, PAD, SEP, TensorMasker

ONLY_DIFFERENT = {"selected-by-id": "frequency", "selected-by-batch": "rates per batch"}  # bug: a recipe that has it


@pytest.mark.parametrize(("mask", "bug"), BUGS.values(), ids=BUGS)
def test_a_dependence_is_found(mask, bug):
    torch.manual_seed(5)
    findings = audit_masks(TensorMasker(mask), workers=0).findings
    (found,) = {(finding.bug, finding.verdict, finding.recipes) for finding in findings if finding.bug == bug}
    recipe = ONLY_DIFFERENT.get(bug)
    assert found[1] == (Verdict.DIFFERS if recipe else Verdict.BROKEN)
    assert recipe is None or recipe in found[2]


@pytest.mark.parametrize(("bug", "target"), BATCH_BUGS.items())
def test_what_else_a_call_returns_is_checked(bug, target):
    findings = audit_masks(target, workers=0).findings
    assert {finding.bug for finding in findings if finding.verdict == Verdict.BROKEN} == {bug}


def test_a_dependence_is_described_by_its_numbers():
    findings = audit_masks(TensorMasker(BUGS["rate by row"][0]), workers=0).findings
    (finding,) = [finding for finding in findings if finding.bug == "selected-by-row"]
    assert finding.found.startswith("the share selected rises from 10.")
    assert len(finding.chart) == 32


def random_table(rng: np.random.Generator) -> Table:
    """BERT's recipe on small windows, without a masker."""
    shape = (128, 8, 64)
    originals = rng.integers(N_ORDINARY, size=shape)
    originals[:, ::2, 0], originals[:, ::2, -1] = CLS, SEP
    selected, draw = (rng.random(shape) < 0.15) & (originals < N_ORDINARY), rng.random(shape)
    replaced = np.where(draw < 0.8, MASK, np.where(draw < 0.9, rng.integers(N_ORDINARY, size=shape), originals))
    tokens = TokenIds(N_TOKENS, MASK, PAD, (PAD, MASK, CLS, SEP), (CLS, SEP))
    source = np.arange(originals.size).reshape(shape)
    inputs, labels = np.where(selected, replaced, originals), np.where(selected, originals, -100)
    return Table(originals, inputs, labels, np.ones(shape, dtype=bool), source, tokens, mask=MASK, ignored=-100)


def test_p_values_are_those_of_chance():
    """Of independent draws, 5% of the tests have a p-value below 5%, or fewer, as several classes share a test."""
    rng = np.random.default_rng(7)
    p = np.array([pair.found.p for _ in range(12) for pair in battery(random_table(rng))])
    assert len(p) > 800
    assert (p < 0.05).mean() < 0.06
    assert (p < 0.5).mean() > 0.2
    assert p.min() > 1e-5
