"""Names the mean that a loss is: every usual wrong one is a number that follows from the logits and the labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from auditing.pipelines.batch import Array

RELATIVE, ABSOLUTE = 2e-4, 2e-5  # tolerances: float32
LOOSE = 5e-3  # of a loss in bfloat16
LARGEST_SMOOTHING = 0.5


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


@dataclass(frozen=True)
class Known:
    """A number that a loss can be equal to."""

    what: str
    bug: str | None  # None if the number is right
    value: Callable[[Measured], float]

    @property
    def is_broken(self) -> bool:
        """Whether the number is wrong for every purpose."""
        return self.bug not in (None, "mean-of-means")


def log_softmax(logits: Array) -> Array:
    """log softmax over the last axis in float64."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def losses_of(log_probs: Array, targets: Array) -> Array:
    """-log P(target), `[batch, seq_len]`; nan for targets outside the logits."""
    valid = (targets >= 0) & (targets < log_probs.shape[-1])
    picked = np.take_along_axis(log_probs, np.where(valid, targets, 0)[..., None], axis=-1)[..., 0]
    return np.where(valid, -picked, np.nan)


def total(losses: Array, weights: Array) -> float:
    """The weighted sum, in which a nan of weight 0 is left out."""
    return float((losses[weights > 0] * weights[weights > 0]).sum())


def mean(m: Measured) -> float:
    """The right number: the mean over labelled positions, in nats."""
    return _mean(losses_of(m.log_probs, m.labels), m.weights)


def name_of(measured: Sequence[Measured], characters: Sequence[str], tolerance: float = RELATIVE) -> Known | None:
    """The known number that the loss equals each time; None if it is none of them.

    `characters` are the text of each ordinary id. The right mean comes first, so it is preferred.
    """
    if all(_is_rounded(each.loss) for each in measured):
        tolerance = max(tolerance, LOOSE)
    for known in known_numbers(characters):
        if all(_equal(known.value(each), each.loss, tolerance) for each in measured):
            return known
    return _smoothed(measured)


def _equal(value: float, loss: float, tolerance: float) -> bool:
    return abs(value - loss) <= tolerance * abs(value) + ABSOLUTE


def _is_rounded(loss: float) -> bool:
    """Whether a loss is a number of bfloat16 or float16."""
    return bool(np.float32(loss).view(np.uint32) & 0x1FFF == 0)


def known_numbers(characters: Sequence[str]) -> list[Known]:
    """All numbers, the right one first."""
    wrong, misaligned = "wrong-mean", "misaligned"
    return [
        Known("the mean over labelled positions, in nats", None, mean),
        Known("the mean in bits, not nats", "bits-not-nats", lambda m: mean(m) / np.log(2)),
        Known("exp of the mean: a perplexity", "bits-not-nats", lambda m: float(np.exp(min(mean(m), 700)))),
        Known("the sum over labelled positions, not their mean", wrong, _sum),
        Known("the sum divided by all positions, labelled or not", wrong, lambda m: _sum(m) / m.labels.size),
        Known("the sum divided by the number of windows", wrong, lambda m: _sum(m) / len(m.labels)),
        Known("the mean over windows of their means", "mean-of-means", lambda m: _mean_of(m, np.arange(len(m.labels)))),
        Known("the mean over batches of their means", "mean-of-means", lambda m: _mean_of(m, m.groups)),
        Known("the mean over all positions, visible characters included", wrong, _all_positions),
        Known("a mean that counts the ignored label as a character", "wrong-ignored-label", _with_ignored),
        Known("the mean of a softmax of the softmax", "softmax-twice", _softmax_twice),
        Known("minus the mean probability, without the logarithm", "no-logarithm", _no_logarithm),
        Known("the mean for the logits of each position and the next label", misaligned, lambda m: _shifted(m, 1)),
        Known("the mean for the logits of each position and the last label", misaligned, lambda m: _shifted(m, -1)),
        Known("the mean for logits [seq_len, batch] and labels [batch, seq_len]", misaligned, _transposed),
        *[
            Known(f"the mean without the labels {name!r} (id {i})", "wrong-ignored-label", _without(i))
            for i, name in enumerate(characters)
        ],
    ]


def _mean(losses: Array, weights: Array) -> float:
    return total(losses, weights) / float(weights.sum()) if weights.any() else np.nan


def _sum(m: Measured) -> float:
    return total(losses_of(m.log_probs, m.labels), m.weights)


def _mean_of(m: Measured, groups: Array | None) -> float:
    """The mean over groups of windows of their means."""
    if groups is None:
        return np.nan
    losses = losses_of(m.log_probs, m.labels)
    means = [_mean(losses[groups == group], m.weights[groups == group]) for group in np.unique(groups)]
    return float(np.nanmean(means)) if np.isfinite(means).any() else np.nan


def _all_positions(m: Measured) -> float:
    return _mean(losses_of(m.log_probs, m.truth), (m.truth >= 0).astype(float))


def _with_ignored(m: Measured) -> float:
    if m.ignored is None:
        return np.nan
    others = losses_of(m.log_probs, np.full_like(m.labels, m.ignored))
    return (_sum(m) + total(others, 1 - m.weights)) / m.labels.size


def _softmax_twice(m: Measured) -> float:
    return _mean(losses_of(log_softmax(np.exp(m.log_probs)), m.labels), m.weights)


def _no_logarithm(m: Measured) -> float:
    return -_mean(np.exp(-losses_of(m.log_probs, m.labels)), m.weights)


def _shifted(m: Measured, by: int) -> float:
    """The mean for the logits `by` positions before each label."""
    weights = m.weights.copy()
    weights[:, slice(None, by) if by > 0 else slice(by, None)] = 0
    return _mean(losses_of(np.roll(m.log_probs, by, axis=1), m.labels), weights)


def _transposed(m: Measured) -> float:
    moved = m.log_probs.swapaxes(0, 1).reshape(m.log_probs.shape)
    return _mean(losses_of(moved, m.labels), m.weights)


def _without(character: int) -> Callable[[Measured], float]:
    return lambda m: _mean(losses_of(m.log_probs, m.labels), m.weights * (m.labels != character))


def _smoothed(measured: Sequence[Measured]) -> Known | None:
    """The mean with label smoothing (Szegedy et al. 2016), if one share explains every batch."""
    shares = []
    for each in measured:
        spread = _mean(-each.log_probs.mean(-1), each.weights)
        shares.append((each.loss - mean(each)) / (spread - mean(each)) if spread != mean(each) else np.nan)
    share = float(np.mean(shares)) if shares else np.nan
    if not (np.ptp(shares) < 1e-3 < share < LARGEST_SMOOTHING):
        return None
    return Known(f"the mean with label smoothing {share:.3f}", None, mean)
