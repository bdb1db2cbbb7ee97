"""Every usual mean of a loss, computed with PyTorch, is named."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss

from auditing.pipelines.known_losses import Measured, log_softmax, mean, name_of
from auditing.pipelines.learning import are_probabilities, to_log_probs

CHARACTERS = "abcdefgh"
BATCH, SEQ_LEN, IGNORED, PADDING = 6, 20, -100, 8
generator = torch.Generator().manual_seed(0)
LOGITS = [3 * torch.randn(BATCH, SEQ_LEN, 10, generator=generator) for _ in range(3)]
TRUTH = [torch.randint(8, (BATCH, SEQ_LEN), generator=generator) for _ in range(3)]
LABELLED = [torch.rand(BATCH, SEQ_LEN, generator=generator) < 0.3 for _ in range(3)]
LABELS = [torch.where(where, truth, IGNORED) for where, truth in zip(LABELLED, TRUTH, strict=True)]


def loss(logits, labels, **options):
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), **options).item()


def named(of_batch, ignored=IGNORED):
    """The name of the loss that `of_batch` computes from logits, labels and truth."""
    measured = []
    for logits, labels, truth, where in zip(LOGITS, LABELS, TRUTH, LABELLED, strict=True):
        labels = torch.where(where, labels, ignored)
        numbers = [each.numpy() for each in (labels, where.double(), truth)]
        measured.append(Measured(of_batch(logits, labels, truth), log_softmax(logits.numpy()), *numbers, ignored))
    return name_of(measured, CHARACTERS)


def test_the_right_mean_has_no_bug():
    assert named(lambda logits, labels, truth: loss(logits, labels)).bug is None
    assert named(lambda logits, labels, truth: loss(logits.bfloat16(), labels)).bug is None
    smoothed = named(lambda logits, labels, truth: loss(logits, labels, label_smoothing=0.1))
    assert smoothed.bug is None
    assert "smoothing 0.100" in smoothed.what


def mean_of_windows(logits, labels, truth):
    return float(np.mean([cross_entropy(*each).item() for each in zip(logits, labels, strict=True)]))


@pytest.mark.parametrize(
    ("of_batch", "bug", "what"),
    [
        (lambda x, y, t: loss(x, y) / math.log(2), "bits-not-nats", "bits"),
        (lambda x, y, t: math.exp(loss(x, y)), "bits-not-nats", "perplexity"),
        (lambda x, y, t: loss(x, y, reduction="sum"), "wrong-mean", "sum over"),
        (lambda x, y, t: loss(x, y, reduction="sum") / y.numel(), "wrong-mean", "all positions"),
        (lambda x, y, t: loss(x, y, reduction="sum") / len(y), "wrong-mean", "number of windows"),
        (mean_of_windows, "mean-of-means", "windows"),
        (lambda x, y, t: loss(x, t), "wrong-mean", "visible"),
        (lambda x, y, t: loss(x.softmax(-1), y), "softmax-twice", "softmax"),
        (lambda x, y, t: nll_loss(x.softmax(-1).flatten(0, 1), y.flatten()).item(), "no-logarithm", "probability"),
        (lambda x, y, t: loss(x[:, :-1], y[:, 1:]), "misaligned", "next"),
        (lambda x, y, t: loss(x[:, 1:], y[:, :-1]), "misaligned", "last"),
        (lambda x, y, t: loss(x.transpose(0, 1).contiguous(), y), "misaligned", "seq_len, batch"),
        (lambda x, y, t: loss(x, torch.where(y == 3, IGNORED, y)), "wrong-ignored-label", "'d' (id 3)"),
    ],
)
def test_wrong_means_are_named(of_batch, bug, what):
    found = named(of_batch)
    assert found.bug == bug
    assert what in found.what


def test_a_loss_that_counts_the_ignored_label_is_named():
    assert named(lambda logits, labels, truth: loss(logits, labels), ignored=PADDING).bug == "wrong-ignored-label"


def test_an_unknown_loss_has_no_name():
    assert named(lambda logits, labels, truth: loss(logits, labels) + 0.37 * logits.square().mean().item()) is None


def test_labels_with_a_weight_count_in_part():
    log_probs = np.log(np.array([[[0.5, 0.5], [0.25, 0.75]]]))
    measured = Measured(0.0, log_probs, np.array([[0, 0]]), np.array([[1.0, 0.5]]), np.array([[0, 0]]))
    assert mean(measured) == pytest.approx((math.log(2) + 0.5 * math.log(4)) / 1.5)


def test_probabilities_are_told_from_logits():
    logits = LOGITS[0].numpy()
    probabilities = LOGITS[0].softmax(-1).numpy()
    assert are_probabilities(probabilities)
    assert not are_probabilities(logits)
    assert not are_probabilities(log_softmax(logits))
    np.testing.assert_allclose(to_log_probs(probabilities), log_softmax(logits), atol=1e-4)
