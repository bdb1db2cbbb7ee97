"""Windows are found in their text, so the truth is known whatever the labels are; references are exact there."""

import numpy as np
import pytest
import torch
from auditing.pipelines.batch import Batch
from auditing.pipelines.levels import compare
from auditing.pipelines.perturbation import draw_masks

from auditing.errors import TargetError
from auditing.pipelines.references import replacement_prob
from auditing.pipelines.windows_read import read_windows
from data.counting import count

SEQ_LEN = 64


@pytest.fixture(scope="module")
def masked(small_play):
    """Truth, inputs and labels `[16, 64]` with BERT's masks, and where characters are selected."""
    random = np.random.Generator(np.random.PCG64(0))
    starts = random.integers(0, len(small_play.validation) - SEQ_LEN, 16)
    truth = small_play.validation[starts[:, None] + np.arange(SEQ_LEN)]
    selected, kind = random.random(truth.shape) < 0.15, random.random(truth.shape)
    inputs = np.where(selected & (kind < 0.8), small_play.tokens.mask, truth)
    inputs = np.where(selected & (kind > 0.9), random.integers(0, small_play.tokens.n_tokens, truth.shape), inputs)
    return truth, inputs, np.where(selected, truth, -100), selected


def read(play, inputs, labels, others=None):
    return read_windows(Batch(inputs, labels, others or {}), play.validation, play.tokens)


def framed(play, inputs, labels):
    """With [CLS], [SEP] and some [PAD]."""
    around = [(0, 0), (1, 4)]
    inputs = np.pad(inputs, around, constant_values=play.tokens.padding)
    inputs[:, 0], inputs[:, -4] = play.tokens.cls, play.tokens.sep
    return inputs, np.pad(labels, around, constant_values=-100)


def test_the_text_behind_masks_is_found(small_play, masked):
    truth, inputs, labels, selected = masked
    found = read(small_play, inputs, labels)
    np.testing.assert_array_equal(found.truth, truth)
    np.testing.assert_array_equal(found.labelled, selected)
    np.testing.assert_array_equal(found.hidden, inputs == small_play.tokens.mask)
    np.testing.assert_array_equal(found.replaced, (inputs != truth) & (inputs != small_play.tokens.mask))
    assert found.ignored == -100


def test_special_tokens_around_the_text_are_no_text(small_play, masked):
    truth, inputs, labels, _ = masked
    found = read(small_play, *framed(small_play, inputs, labels))
    np.testing.assert_array_equal(found.truth[:, 1:-4], truth)
    assert (found.truth[:, 0] == -1).all()
    assert (found.truth[:, -4:] == -1).all()


def test_wrong_labels_do_not_hide_the_truth(small_play, masked):
    truth, inputs, _, selected = masked
    for labels in (np.roll(truth, -1, axis=1), np.where(selected, np.roll(truth, -1, axis=1), -100), inputs):
        np.testing.assert_array_equal(read(small_play, inputs, labels).truth, truth)


def test_a_bool_tensor_marks_the_labelled_positions_if_all_have_a_label(small_play, masked):
    truth, inputs, _, selected = masked
    found = read(small_play, inputs, truth, {"mask": selected})
    assert found.ignored is None
    np.testing.assert_array_equal(found.labelled, selected)


def test_an_ordinary_id_on_most_positions_is_the_ignored_label(small_play, masked):
    truth, inputs, _, selected = masked
    assert read(small_play, inputs, np.where(selected, truth, 0)).ignored == 0


def test_windows_in_order_are_found_even_if_almost_everything_is_hidden(small_play):
    truth = small_play.validation[: 16 * SEQ_LEN].reshape(16, SEQ_LEN)
    random = np.random.Generator(np.random.PCG64(0))
    hidden = random.random(truth.shape) < np.where(np.arange(16) == 0, 0.15, 0.95)[:, None]
    inputs = np.where(hidden, small_play.tokens.mask, truth)
    np.testing.assert_array_equal(read(small_play, inputs, np.full_like(inputs, -100)).truth, truth)


def test_another_text_raises(small_play, masked):
    _, inputs, labels, _ = masked
    with pytest.raises(TargetError, match=r"inputs \[16, 64\] do not show the text"):
        read(small_play, inputs[:, ::-1], labels[:, ::-1])
    with pytest.raises(TargetError, match="do not show the text"):
        read(small_play, np.full_like(inputs, small_play.tokens.padding), labels)


def test_references_are_the_floor_and_counting_of_the_same_positions(small_play, masked):
    truth, _, _, selected = masked
    n_chars = small_play.tokens.n_ordinary
    inputs, labels = np.where(selected, small_play.tokens.mask, truth), np.where(selected, truth, -100)
    where = torch.from_numpy(selected)
    expected = small_play.floor.losses(torch.from_numpy(truth), where)[where]
    counted = count(small_play.training, truth, selected, n_chars).losses
    for of_windows in ((inputs, labels), framed(small_play, inputs, labels)):
        references = small_play.references([read(small_play, *of_windows)])
        np.testing.assert_allclose(references.floor, expected, rtol=1e-9)
        np.testing.assert_allclose(references.counting, counted)
        np.testing.assert_allclose(references.unigram, -small_play.unigram[truth[selected]])


def test_the_posterior_knows_that_characters_are_replaced(small_play, masked):
    _, inputs, labels, _ = masked
    reading = read(small_play, inputs, labels)
    assert reading.replaced.any()
    prob = replacement_prob(reading, small_play.tokens.n_ordinary)
    assert 0.005 < prob < 0.04
    posterior = np.exp(small_play.posterior(reading, reading.hidden | reading.replaced)[reading.replaced])
    np.testing.assert_allclose(posterior.sum(-1), 1)
    of_truth = posterior[np.arange(len(posterior)), reading.truth[reading.replaced]]
    assert 0.3 < of_truth.mean() < 1


def test_masks_of_the_audits_own_hide_the_same_share(small_play, masked):
    truth, inputs, labels, _ = masked
    anew_inputs, anew_labels, reading = draw_masks(read(small_play, inputs, labels), small_play.tokens.mask, seed=0)
    np.testing.assert_array_equal(reading.truth, truth)
    np.testing.assert_array_equal(anew_labels[reading.scored], truth[reading.scored])
    np.testing.assert_array_equal(anew_inputs == truth, ~reading.hidden)
    assert 0.08 < reading.hidden.mean() < 0.17


def test_a_difference_is_in_standard_errors_of_windows():
    windows = np.repeat(np.arange(100), 10)
    random = np.random.Generator(np.random.PCG64(0))
    of_window = random.normal(size=100)[windows]  # the positions of a window are the same
    level = compare(1.0 + of_window, np.ones(1000), windows)
    assert level.error == pytest.approx(of_window.std() / 10, rel=0.02)
    assert compare(np.zeros(1000), 1.0 + 0.1 * random.normal(size=1000), windows).z < -5
    assert compare(np.ones(1000), np.ones(1000), windows).z == 0


def test_few_windows_are_no_evidence_of_a_leak():
    windows = np.repeat(np.arange(100), 10)
    noise = 0.1 * np.random.default_rng(0).normal(size=1000)
    assert compare(np.zeros(1000), 1.0 + noise, windows).is_leak
    assert not compare(np.zeros(1000), 1.0 + noise, windows // 10).is_leak
