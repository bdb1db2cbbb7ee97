"""Changes to a batch move the predictions of models that depend on it, and leaks are found at their source."""

import numpy as np
import pytest
from auditing.pipelines.batch import Batch
from auditing.pipelines.dependence import check_dependence
from auditing.pipelines.perturbation import Perturbation

from auditing.pipelines.windows_read import Reading

N_CHARS, MASK, BATCH, SEQ_LEN = 10, 10, 8, 30


@pytest.fixture
def batch():
    random = np.random.Generator(np.random.PCG64(1))
    truth = random.integers(0, N_CHARS, (BATCH, SEQ_LEN))
    hidden = random.random(truth.shape) < 0.2
    inputs, labels = np.where(hidden, MASK, truth), np.where(hidden, truth, -100)
    return Batch(inputs, labels, {"text": truth, "attention_mask": np.ones_like(truth)})


def model_of(batch, feature):
    """A model whose logit of character c is 1 if `feature` [batch, seq_len] of the tensors is c modulo 10."""

    def predict(changes):
        tensors = {"inputs": batch.inputs, "labels": batch.labels, **batch.others, **changes}
        return np.eye(N_CHARS)[np.asarray(feature(tensors)) % N_CHARS]

    return predict


def perturbation(batch, feature):
    truth = batch.others["text"]
    hidden = batch.inputs == MASK
    reading = Reading(batch.inputs, batch.labels, truth, truth, hidden, hidden, -100)
    return Perturbation(model_of(batch, feature), batch, reading, N_CHARS, seed=0)


def both_sides(t):
    left = np.roll(t["inputs"], 1, axis=1) + 2 * np.roll(t["inputs"], 2, axis=1)
    return left + 3 * np.roll(t["inputs"], -1, axis=1)


def across(t):
    return both_sides(t) + t["inputs"].sum(axis=0)


def bag(t):
    return np.broadcast_to(t["inputs"].sum(axis=1, keepdims=True), t["inputs"].shape)


@pytest.mark.parametrize(
    ("feature", "bugs"),
    [
        (both_sides, set()),
        (lambda t: both_sides(t) + t["attention_mask"], set()),
        (lambda t: both_sides(t) + t["labels"], {"leak-labels"}),
        (lambda t: both_sides(t) + t["labels"].sum(axis=1, keepdims=True), {"leak-labels"}),
        (lambda t: both_sides(t) + t["text"], {"leak-target"}),
        (across, {"attends-over-batch"}),
        (lambda t: np.roll(t["inputs"], 1, axis=1) + 2 * np.roll(t["inputs"], 2, axis=1), {"no-right-context"}),
        (lambda t: np.roll(t["inputs"], -1, axis=1) + 2 * np.roll(t["inputs"], -2, axis=1), {"no-left-context"}),
        (lambda t: np.zeros((BATCH, SEQ_LEN), int), {"no-context"}),
        (bag, {"no-positions"}),
    ],
)
def test_dependence_has_a_name(batch, feature, bugs):
    found = perturbation(batch, feature)
    assert {each.bug for each in check_dependence(found.effects(), found.copies_of_text())} - {None} == bugs


def test_a_model_that_draws_cannot_be_judged(batch):
    random = np.random.Generator(np.random.PCG64(0))
    found = perturbation(batch, lambda t: random.integers(0, N_CHARS, t["inputs"].shape))
    (finding,) = check_dependence(found.effects(), [])
    assert finding.bug == "not-deterministic"


@pytest.mark.parametrize("offset", [-2, 1])
def test_a_copied_neighbor_is_found(batch, offset):
    assert perturbation(batch, lambda t: np.roll(t["inputs"], -offset, axis=1)).copied_offset() == (offset, 1.0)


def test_the_sources_of_a_leak_are_labels_and_other_tensors(batch):
    sources = dict(perturbation(batch, both_sides).without())
    assert set(sources) == {"labels", "text", "attention_mask"}
    changed = sources["labels"]["labels"] != batch.labels
    np.testing.assert_array_equal(changed, batch.inputs == MASK)
