"""Names the mean that a loss is: every usual wrong one is a number that follows from the logits and the labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditing.pipelines.play_tokens import Array

RELATIVE, ABSOLUTE = 2e-4, 2e-5  # tolerances: float32
LOOSE = 5e-3  # of a loss in bfloat16
LARGEST_SMOOTHING = 0.5
PROBABILITY_SUM = 1e-3  # from 1
RIGHT = "the mean over labelled positions, in nats"


@dataclass(frozen=True)
class Measured:
    """Windows that a loss was measured on."""

    loss: float
    log_probs: Array  # [batch, seq_len, n_logits]; nan where the model does not predict
    labels: Array  # [batch, seq_len]
    weights: Array  # [batch, seq_len]: 1 where there is a label, 0 elsewhere; between if there may be one
    truth: Array  # [batch, seq_len]; -1 where there is no text
    ignored: int | None = None  # the label of all other positions
    groups: Array | None = None  # [batch] the batch of each window, if there are several
    are_probabilities: bool = False  # whether the "logits" were

    def mean(self, log_probs: Array | None = None, weights: Array | None = None) -> float:
        """The right number, or that of other log-probabilities or weights."""
        return weighted(losses_of(self.log_probs if log_probs is None else log_probs, self.labels),
                        self.weights if weights is None else weights)  # fmt: skip


def are_probabilities(logits: Array) -> bool:
    """Whether the rows of "logits" are probabilities; rows of nan are left out."""
    rows = logits[np.isfinite(logits).all(-1)]
    return bool(len(rows) and rows.min() >= 0 and np.abs(rows.sum(-1) - 1).max() < PROBABILITY_SUM)


def to_log_probs(logits: Array) -> Array:
    """The log-probabilities that logits stand for; the logarithm if they are probabilities already."""
    logits = logits.astype(np.float64)
    return np.log(np.maximum(logits, 1e-30)) if are_probabilities(logits) else log_softmax(logits)


def log_softmax(logits: Array) -> Array:
    """log softmax over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def losses_of(log_probs: Array, targets: Array) -> Array:
    """-log P(target), `[batch, seq_len]`; nan for targets outside the logits."""
    valid = (targets >= 0) & (targets < log_probs.shape[-1])
    picked = np.take_along_axis(log_probs, np.where(valid, targets, 0)[..., None], axis=-1)[..., 0]
    return np.where(valid, -picked, np.nan)


def weighted(losses: Array, weights: Array) -> float:
    """The weighted mean, in which a nan of weight 0 is left out; nan if there are no weights."""
    return float(np.average(losses[weights > 0], weights=weights[weights > 0])) if weights.any() else np.nan


def name_of(measured: Sequence[Measured], characters: Sequence[str], tolerance: float = RELATIVE) -> tuple[str, str]:
    """The known number that the loss equals each time, and its bug, "" if it is right; ("", "unknown-loss") if none.

    `characters` are the text of each ordinary id. The right mean comes first, so it is preferred.
    """
    if all(np.float32(each.loss).view(np.uint32) & 0x1FFF == 0 for each in measured):  # bfloat16 or float16
        tolerance = max(tolerance, LOOSE)
    every = [known_numbers(each, characters) for each in measured]
    for what, (_, bug) in every[0].items():
        values = [numbers.get(what, (np.nan,))[0] for numbers in every]
        if all(abs(v - m.loss) <= tolerance * abs(v) + ABSOLUTE for v, m in zip(values, measured, strict=True)):
            return what, bug
    return "", "unknown-loss"


def known_numbers(m: Measured, characters: Sequence[str]) -> dict[str, tuple[float, str]]:
    """The value and the bug of every number, the right one first."""
    losses, mean, total = losses_of(m.log_probs, m.labels), m.mean(), m.mean() * m.weights.sum()
    ignored = losses_of(m.log_probs, np.full_like(m.labels, -1 if m.ignored is None else m.ignored))
    counted = weighted(np.where(m.weights > 0, losses, ignored), np.ones(losses.shape))
    transposed = m.log_probs.swapaxes(0, 1).reshape(m.log_probs.shape)

    def mean_of(groups: Array) -> float:
        means = [weighted(losses[groups == group], m.weights[groups == group]) for group in np.unique(groups)]
        return float(np.nanmean(means)) if np.isfinite(means).any() else np.nan

    def shifted(by: int) -> float:
        """The mean for the logits `by` positions before each label."""
        weights = m.weights.copy()
        weights[:, slice(None, by) if by > 0 else slice(by, None)] = 0
        return m.mean(np.roll(m.log_probs, by, axis=1), weights)

    return {
        RIGHT: (mean, ""),
        f"the mean with label smoothing {_smoothing(m):.2f}": (m.loss if _smoothing(m) else np.nan, ""),
        "the mean in bits, not nats": (mean / np.log(2), "bits-not-nats"),
        "exp of the mean: a perplexity": (float(np.exp(min(mean, 700))), "bits-not-nats"),
        "the sum over labelled positions, not their mean": (total, "wrong-mean"),
        "the sum divided by all positions, labelled or not": (total / m.labels.size, "wrong-mean"),
        "the sum divided by the number of windows": (total / len(m.labels), "wrong-mean"),
        "the mean over windows of their means": (mean_of(np.arange(len(m.labels))), "mean-of-means"),
        "the mean over batches of their means": (np.nan if m.groups is None else mean_of(m.groups), "mean-of-means"),
        "the mean over all positions, visible characters included": (
            weighted(losses_of(m.log_probs, m.truth), (m.truth >= 0).astype(float)),
            "wrong-mean",
        ),
        "a mean that counts the ignored label as a character": (counted, "wrong-ignored-label"),
        "the mean of a softmax of the softmax": (m.mean(log_softmax(np.exp(m.log_probs))), "softmax-twice"),
        "minus the mean probability, without the logarithm": (-weighted(np.exp(-losses), m.weights), "no-logarithm"),
        "the mean for the logits of each position and the next label": (shifted(1), "misaligned"),
        "the mean for the logits of each position and the last label": (shifted(-1), "misaligned"),
        "the mean for logits [seq_len, batch] and labels [batch, seq_len]": (m.mean(transposed), "misaligned"),
        **{
            f"the mean without the labels {name!r} (id {i})": (
                m.mean(weights=m.weights * (m.labels != i)),
                "wrong-ignored-label",
            )
            for i, name in enumerate(characters)
        },
    }


def _smoothing(m: Measured) -> float:
    """The share of label smoothing (Szegedy et al. 2016) that would explain the loss, in steps of 0.01, or 0."""
    spread = weighted(-m.log_probs.mean(-1), m.weights) - m.mean()
    share = (m.loss - m.mean()) / spread if spread else 0.0
    return round(share, 2) if 0 < share < LARGEST_SMOOTHING and abs(share - round(share, 2)) < 1e-3 else 0.0
