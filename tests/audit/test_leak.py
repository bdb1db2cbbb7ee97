"""Losses below the floor: the audit takes each source of information away and names the one that mattered."""

import numpy as np
import pytest
from auditing.pipelines.batch import Batch
from auditing.pipelines.evaluation_windows import EvaluationWindows
from auditing.pipelines.leak import locate
from auditing.pipelines.levels import LEAK, compare
from auditing.pipelines.perturbation import Perturbation

from auditing.pipelines.learning import check_floor

N_WINDOWS, SEQ_LEN, SURE = 32, 32, 8.0


@pytest.fixture(scope="module")
def text(small_play):
    random = np.random.Generator(np.random.PCG64(2))
    starts = random.integers(0, len(small_play.validation) - SEQ_LEN, N_WINDOWS // 2)
    return np.repeat(small_play.validation[starts[:, None] + np.arange(SEQ_LEN)], 2, axis=0)  # each window twice


def masked(play, text, selected, **others):
    inputs = np.where(selected, play.tokens.mask, text)
    return Batch(inputs, np.where(selected, text, -100), others)


def alternating(text):
    """Every fourth character, at other positions in the second copy of a window."""
    rows, columns = np.indices(text.shape)
    return columns % 4 == rows % 2


def source_of(play, batch, predicted):
    """The bug and the cause found for a model that is sure of `predicted(tensors)` `[batch, seq_len]`."""

    def call(name, index, changes):
        tensors = {"inputs": batch.inputs, "labels": batch.labels, **batch.others, **changes}
        return 0.0, SURE * np.eye(play.tokens.n_tokens)[predicted(tensors)]

    windows = EvaluationWindows.of_batches(call, play, [batch])
    references = windows.references()
    level = compare(windows.losses(), references.floor, references.windows)
    if level.z >= -LEAK:
        return None
    held = windows.held[0]
    n_chars = play.tokens.n_ordinary
    each = Perturbation(lambda changes: windows.log_probs(held, changes), batch, held.reading, n_chars, seed=0)
    finding = check_floor(level, locate(windows, references, [each], seed=0))
    return finding.bug, finding.cause


def test_a_model_that_guesses_is_no_leak(small_play, text):
    assert source_of(small_play, masked(small_play, text, alternating(text)), lambda t: t["inputs"]) is None


def test_labels(small_play, text):
    batch = masked(small_play, text, alternating(text))
    bug, cause = source_of(small_play, batch, lambda t: np.maximum(t["labels"], 0))
    assert bug == "leak-labels"
    assert "labels" in cause


@pytest.mark.parametrize(
    ("name", "shift", "bug"),
    [("memory", 0, "leak-target"), ("code", 5, "leak-target"), ("position_ids", 5, "leak-position-ids")],
)
def test_another_tensor(small_play, text, name, shift, bug):
    n = small_play.tokens.n_ordinary
    batch = masked(small_play, text, alternating(text), **{name: (text + shift) % n})
    found, cause = source_of(small_play, batch, lambda t: (t[name] - shift) % n)
    assert found == bug
    assert name in cause


def test_other_windows(small_play, text):
    def of_the_other_copy(tensors):
        inputs = tensors["inputs"]
        return inputs.reshape(-1, 2, SEQ_LEN)[:, ::-1].reshape(inputs.shape)

    batch = masked(small_play, text, alternating(text))
    assert source_of(small_play, batch, of_the_other_copy)[0] == "attends-over-batch"


@pytest.mark.parametrize(("offset", "bug"), [(-1, "leak-left"), (2, "leak-right")])
def test_a_character_that_has_moved(small_play, text, offset, bug):
    selected = np.indices(text.shape)[1] % 8 == 4
    batch = masked(small_play, text, selected)
    moved = np.roll(selected, offset, axis=1)
    batch.inputs[moved] = np.roll(text, offset, axis=1)[moved]
    assert source_of(small_play, batch, lambda t: np.roll(t["inputs"], -offset, axis=1))[0] == bug


def test_masks_that_tell(small_play, text):
    letter = small_play.tokens.names.index("a")
    batch = masked(small_play, text, text == letter)
    bug, cause = source_of(small_play, batch, lambda t: np.full(t["inputs"].shape, letter))
    assert bug == "leak-evaluation-masks"
    assert "independent masks" in cause
