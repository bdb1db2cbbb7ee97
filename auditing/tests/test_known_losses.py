"""Every usual mean of a loss, computed with PyTorch, is named."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss

from auditing.pipelines.known_losses import MeasuredLoss, log_softmax, name_of

BATCH = 6
SEQ_LEN = 20
IGNORED = -100
PADDING = 8
generator = torch.Generator().manual_seed(0)
LOGITS = [3 * torch.randn(BATCH, SEQ_LEN, 10, generator=generator) for _ in range(3)]
TRUTH = [torch.randint(8, (BATCH, SEQ_LEN), generator=generator) for _ in range(3)]
LABELLED = [torch.rand(BATCH, SEQ_LEN, generator=generator) < 0.3 for _ in range(3)]


def loss(logits, labels, **options):
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), **options).item()


def mean_of_windows(logits, labels, truth):
    return float(
        np.mean(
            [cross_entropy(*each).item() for each in zip(logits, labels, strict=True)]
        )
    )


@pytest.mark.parametrize(
    ("of_batch", "bug", "what"),
    [
        (lambda x, y, t: loss(x, y), "", "labelled"),
        (lambda x, y, t: loss(x.bfloat16(), y), "", "labelled"),
        (lambda x, y, t: loss(x, y, label_smoothing=0.1), "", "smoothing 0.1"),
        (lambda x, y, t: loss(x, y) / math.log(2), "bits-not-nats", "bits"),
        (lambda x, y, t: math.exp(loss(x, y)), "bits-not-nats", "perplexity"),
        (lambda x, y, t: loss(x, y, reduction="sum"), "wrong-mean", "sum over"),
        (
            lambda x, y, t: loss(x, y, reduction="sum") / y.numel(),
            "wrong-mean",
            "all positions",
        ),
        (
            lambda x, y, t: loss(x, y, reduction="sum") / len(y),
            "wrong-mean",
            "number of windows",
        ),
        (
            lambda x, y, t: loss(x, y, reduction="sum") / 77,
            "wrong-mean",
            "divided by 77",
        ),
        (mean_of_windows, "mean-of-means", "windows"),
        (lambda x, y, t: loss(x, t), "wrong-mean", "visible"),
        (lambda x, y, t: loss(x.softmax(-1), y), "softmax-twice", "softmax"),
        (
            lambda x, y, t: nll_loss(x.softmax(-1).flatten(0, 1), y.flatten()).item(),
            "no-logarithm",
            "probability",
        ),
        (lambda x, y, t: loss(x[:, :-1], y[:, 1:]), "misaligned", "next"),
        (lambda x, y, t: loss(x[:, 1:], y[:, :-1]), "misaligned", "last"),
        (
            lambda x, y, t: loss(x.transpose(0, 1).contiguous(), y),
            "misaligned",
            "seq_len, batch",
        ),
        (
            lambda x, y, t: loss(x, torch.where(y == 3, IGNORED, y)),
            "wrong-ignored-label",
            "'d' (id 3)",
        ),
        (
            lambda x, y, t: loss(x, y.where(y >= 0, torch.tensor(PADDING))),
            "wrong-ignored-label",
            "counts the ignored",
        ),
        (
            lambda x, y, t: loss(x, y) + 0.37 * x.square().mean().item(),
            "unknown-loss",
            "none of the usual",
        ),
    ],
)
def test_means_are_named(of_batch, bug, what):
    ignored = PADDING if "counts" in what else IGNORED
    measured = []

    for x, truth, where in zip(LOGITS, TRUTH, LABELLED, strict=True):
        value = of_batch(x, torch.where(where, truth, IGNORED), truth)
        labels = torch.where(where, truth, ignored).numpy()
        measured.append(
            MeasuredLoss(
                value,
                log_softmax(x.numpy()),
                labels,
                where.numpy(),
                truth.numpy(),
                ignored,
            )
        )

    found, found_bug = name_of(measured, "abcdefgh")
    assert found_bug == bug
    assert what in found
