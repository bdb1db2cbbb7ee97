"""Names the mean that a loss is: every usual wrong one is a number that follows from the logits and
the labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditing.pipelines.target_batch import Array

RELATIVE, ABSOLUTE = 2e-5, 2e-5  # tolerances: float32
LOOSE = 5e-3  # of a loss in bfloat16
MOST_DIVIDED = 2_000  # a larger divisor is near some whole number by chance
PROBABILITY_SUM = 1e-3  # from 1


@dataclass(frozen=True)
class MeasuredLoss:
    """Windows that a loss was measured on; all arrays are `[batch, seq_len]`."""

    loss: float
    log_probs: Array  # and [n_logits]; nan where the model does not predict
    labels: Array
    labelled: Array  # bool
    truth: Array  # -1 where there is no text
    ignored: int | None  # the label of all other positions
    are_probabilities: bool = False  # whether the "logits" were

    def mean(
        self, log_probs: Array | None = None, labelled: Array | None = None
    ) -> float:
        """The right number, the mean over labelled positions in nats, or that of other logits or
        labels."""
        losses = losses_of(
            self.log_probs if log_probs is None else log_probs, self.labels
        )
        return mean_of(losses[self.labelled if labelled is None else labelled])


def are_probabilities(logits: Array) -> bool:
    """Whether the rows of "logits" are probabilities; rows of nan are left out."""
    rows = logits[np.isfinite(logits).all(-1)]
    return bool(
        len(rows)
        and rows.min() >= 0
        and np.abs(rows.sum(-1) - 1).max() < PROBABILITY_SUM
    )


def log_softmax(logits: Array) -> Array:
    """The log-probabilities that logits stand for, in float64."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def losses_of(log_probs: Array, targets: Array) -> Array:
    """-log P(target), `[batch, seq_len]`; nan for targets outside the logits."""
    valid = (targets >= 0) & (targets < log_probs.shape[-1])
    picked = np.take_along_axis(
        log_probs, np.where(valid, targets, 0)[..., None], axis=-1
    )[..., 0]
    return np.where(valid, -picked, np.nan)


def mean_of(values: Array) -> float:
    """The mean; nan if there are none."""
    return float(values.mean()) if values.size else np.nan


def name_of(
    measured: Sequence[MeasuredLoss], characters: Sequence[str]
) -> tuple[str, str]:
    """The known number that the loss equals each time, and its bug, "" if it is right;
    "unknown-loss" if none.

    `characters` are the text of each ordinary id. The right mean comes first, so it is preferred.
    """
    is_rounded = all(
        np.float32(each.loss).view(np.uint32) & 0x1FFF == 0 for each in measured
    )  # bfloat16, float16
    every = [known_numbers(each, characters) for each in measured]

    for name in every[0]:
        values = np.array([numbers.get(name, np.nan) for numbers in every])
        close = (LOOSE if is_rounded else RELATIVE) * np.abs(values) + ABSOLUTE
        if (np.abs(values - [each.loss for each in measured]) <= close).all():
            return name

    return "none of the usual means", "unknown-loss"


def known_numbers(
    m: MeasuredLoss, characters: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The value of every number, by its description and its bug; the right one first."""
    mean = m.mean()
    total = mean * m.labelled.sum()
    losses = losses_of(m.log_probs, m.labels)
    numbers = {
        ("the mean over labelled positions, in nats", ""): mean,
        ("the mean in bits, not nats", "bits-not-nats"): mean / np.log(2),
        ("exp of the mean: a perplexity", "bits-not-nats"): np.exp(min(mean, 700)),
    }
    numbers |= wrong_means(m, losses, total)
    numbers |= wrong_probabilities(m, losses)
    numbers |= misaligned(m)
    for i, name in enumerate(characters):
        what = f"the mean without the labels {name!r} (id {i})"
        numbers[what, "wrong-ignored-label"] = m.mean(
            labelled=m.labelled & (m.labels != i)
        )

    divisor = round(total / m.loss) if 0 < total < MOST_DIVIDED * m.loss else 0
    what = f"the sum over labelled positions, divided by {divisor}"
    numbers[what, "wrong-mean"] = total / max(1, divisor)

    # Label smoothing comes last: with small logits it is near other numbers.
    spread = mean_of(-m.log_probs.mean(-1)[m.labelled]) - mean
    smoothing = round((m.loss - mean) / spread, 2) if spread else 0.0
    smoothed = mean + smoothing * spread if 0 < smoothing < 0.5 else mean
    numbers[f"the mean with label smoothing {smoothing}", ""] = smoothed
    return {key: float(value) for key, value in numbers.items()}


def wrong_means(
    m: MeasuredLoss, losses: Array, total: float
) -> dict[tuple[str, str], float]:
    """Means over other positions, or of other sums."""
    bug = "wrong-mean"
    ignored = -1 if m.ignored is None else m.ignored
    of_ignored = losses_of(m.log_probs, np.full_like(m.labels, ignored))
    counted = np.where(m.labelled, losses, of_ignored)
    visible = losses_of(m.log_probs, m.truth)[m.truth >= 0]
    windows = []
    for row, labelled in zip(losses, m.labelled, strict=True):
        if labelled.any():
            windows.append(mean_of(row[labelled]))

    return {
        ("the sum over labelled positions, not their mean", bug): total,
        ("the sum divided by all positions, labelled or not", bug): total
        / m.labels.size,
        ("the sum divided by the number of windows", bug): total / len(m.labels),
        ("the mean over windows of their means", "mean-of-means"): mean_of(
            np.array(windows)
        ),
        ("the mean over all positions, visible ones included", bug): mean_of(visible),
        (
            "a mean that counts the ignored label as a character",
            "wrong-ignored-label",
        ): mean_of(counted),
    }


def wrong_probabilities(m: MeasuredLoss, losses: Array) -> dict[tuple[str, str], float]:
    """Means of something else than -log P."""
    softmax_of_softmax = log_softmax(np.exp(m.log_probs))
    probabilities = np.exp(-losses[m.labelled])
    without_logarithm = "minus the mean probability, without the logarithm"
    return {
        ("the mean of a softmax of the softmax", "softmax-twice"): m.mean(
            softmax_of_softmax
        ),
        (without_logarithm, "no-logarithm"): -mean_of(probabilities),
    }


def misaligned(m: MeasuredLoss) -> dict[tuple[str, str], float]:
    """Means for logits and the labels of other positions."""
    bug = "misaligned"
    places = np.arange(m.labels.shape[1])
    not_first = m.labelled & (places > 0)
    not_last = m.labelled & (places < places[-1])
    of_last = np.roll(m.log_probs, 1, 1)
    of_next = np.roll(m.log_probs, -1, 1)
    transposed = m.log_probs.swapaxes(0, 1).reshape(m.log_probs.shape)
    swapped = "the mean for logits [seq_len, batch] and labels [batch, seq_len]"
    return {
        ("the mean for logits and the next position's label", bug): m.mean(
            of_last, not_first
        ),
        ("the mean for logits and the last position's label", bug): m.mean(
            of_next, not_last
        ),
        (swapped, bug): m.mean(transposed),
    }
