"""Batches are found in their text, so the truth is known whatever the labels are; the floor is
exact there."""

import numpy as np
import pytest
import torch

from auditing.errors import TargetError
from auditing.masks.texts import Masked
from auditing.pipelines.batches import table_of
from auditing.pipelines.references import check_losses

SEQ_LEN = 64


@pytest.fixture(scope="module")
def masked(small_play):
    """Truth, inputs and labels `[16, 64]` with BERT's masks, and where characters are selected."""
    random = np.random.Generator(np.random.PCG64(0))
    starts = random.integers(0, len(small_play.validation) - SEQ_LEN, 16)
    truth = small_play.validation[starts[:, None] + np.arange(SEQ_LEN)]
    selected = random.random(truth.shape) < 0.15
    kind = random.random(truth.shape)
    inputs = np.where(selected & (kind < 0.8), small_play.tokens.mask, truth)
    inputs = np.where(
        selected & (kind > 0.9),
        random.integers(0, small_play.tokens.n_tokens, truth.shape),
        inputs,
    )
    return truth, inputs, np.where(selected, truth, -100), selected


def read(play, inputs, labels, others=None):
    return table_of(
        [Masked(inputs, labels, others or {})], play.validation, play.tokens
    )


def truth_of(table):
    return np.where(table.source >= 0, table.originals, -1)[0]


def framed(play, inputs, labels):
    """With [CLS], [SEP] and some [PAD]."""
    around = [(0, 0), (1, 4)]
    inputs = np.pad(inputs, around, constant_values=play.tokens.padding)
    inputs[:, 0] = play.tokens.cls
    inputs[:, -4] = play.tokens.sep
    return inputs, np.pad(labels, around, constant_values=-100)


def test_the_text_behind_masks_is_found(small_play, masked):
    """Also if all positions have a label, and a bool tensor marks those that count."""
    truth, inputs, labels, selected = masked
    for found in (
        read(small_play, inputs, labels),
        read(small_play, inputs, truth, {"mask": selected}),
    ):
        np.testing.assert_array_equal(truth_of(found), truth)
        np.testing.assert_array_equal(found.labelled[0], selected)
        assert found.ignored == -100


def test_special_tokens_around_the_text_are_no_text(small_play, masked):
    truth, inputs, labels, _ = masked
    found = read(small_play, *framed(small_play, inputs, labels))
    np.testing.assert_array_equal(
        truth_of(found), np.pad(truth, [(0, 0), (1, 4)], constant_values=-1)
    )


def test_wrong_labels_do_not_hide_the_truth(small_play, masked):
    truth, inputs, _, selected = masked

    for labels in (
        np.roll(truth, -1, axis=1),
        np.where(selected, np.roll(truth, -1, axis=1), -100),
        inputs,
    ):
        # -1 beyond the last characters that tell the place
        found = truth_of(read(small_play, inputs, labels))
        np.testing.assert_array_equal(found[found >= 0], truth[found >= 0])
        assert (found >= 0).mean() > 0.7


def test_another_text_raises(small_play, masked):
    _, inputs, labels, _ = masked
    with pytest.raises(TargetError, match=r"inputs \[16, 64\] do not show the text"):
        read(small_play, inputs[:, ::-1], labels[:, ::-1])
    with pytest.raises(TargetError, match="do not show the text"):
        read(small_play, np.full_like(inputs, small_play.tokens.padding), labels)


def test_the_floor_is_exact_on_the_same_positions(small_play, masked):
    truth, _, _, selected = masked
    inputs = np.where(selected, small_play.tokens.mask, truth)
    labels = np.where(selected, truth, -100)
    shown = np.where(selected, small_play.automaton.n_chars, truth)
    posterior = small_play.automaton.posteriors(
        torch.from_numpy(shown), torch.from_numpy(selected), misprint_prob=0.0
    )
    expected = -np.log(posterior.numpy()[np.arange(selected.sum()), truth[selected]])

    for of_windows in ((inputs, labels), framed(small_play, inputs, labels)):
        np.testing.assert_allclose(
            small_play.floor(read(small_play, *of_windows)), expected, rtol=1e-9
        )


def test_the_floor_knows_that_characters_are_replaced(small_play, masked):
    table = read(small_play, *masked[1:3])
    assert table.randomized.any()
    assert 0.3 < small_play.floor(table).mean() < 1


@pytest.mark.parametrize(
    ("copies", "below", "bug"), [(1, 0.5, None), (2, 0.0, None), (2, 0.5, "leak")]
)
def test_a_leak_is_below_the_floor_in_standard_errors_of_windows(
    small_play, masked, copies, below, bug
):
    """16 windows say too little, and the positions of a window are not independent evidence."""
    table = read(small_play, *(np.tile(part, (copies, 1)) for part in masked[1:3]))
    rows = table.masked[0].nonzero()[0]
    noise = np.random.Generator(np.random.PCG64(0)).normal(size=16)[rows % 16]
    references = {"unigram": np.full(len(noise), 3.0), "floor": np.ones(len(noise))}
    losses = references["floor"] - below + 0.1 * noise
    assert check_losses(losses, references, table)[1].bug == bug
