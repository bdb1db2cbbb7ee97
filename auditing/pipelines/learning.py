"""Checks of a trained pipeline: which weights have learned, and where the loss lies among the exact ones."""

from collections.abc import Mapping, Sequence

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, checked
from auditing.pipelines.play_tokens import Array
from auditing.pipelines.references import standard_error
from auditing.pipelines.windows_read import Reading

LEAK = 5.0  # standard errors below the floor
MIN_WINDOWS = 20  # with fewer, a standard error over windows says too little
NEAR_UNIGRAM = 0.1  # nats: a model this close to the unigram does not use the neighbors
LEFT_OUT = 0.5  # the share of weight tensors that a pipeline may leave as they are


def check_finite(losses: Sequence[float]) -> Finding:
    """Are all training losses numbers?"""
    bad = [i for i, loss in enumerate(losses, start=1) if not np.isfinite(loss)]
    cause = "A batch without labels, whose mean is 0 / 0, or a learning rate that is too high."
    found = f"not finite at step {bad[0]:,}" if bad else "finite"
    return checked("training losses", found, "finite", f"of {len(losses):,}", ("not-finite", cause) if bad else None)


def check_weights(unchanged: Sequence[str], n_weights: int, steps: int) -> Finding:
    """Does training change the weights?"""
    some = ", ".join(unchanged[:3]) + (", ..." if len(unchanged) > 3 else "")
    problem: Problem = ("weights-left-out", f"Frozen, unused, or not in the optimizer: {some}.") if unchanged else None
    if len(unchanged) == n_weights > 0:
        problem = "weights-unchanged", "The learning rate is 0, or the loss is detached from the weights."
    verdict = Verdict.BROKEN if len(unchanged) > LEFT_OUT * n_weights else Verdict.DIFFERS
    name, found = f"weights after step {steps:,}", f"{len(unchanged)} tensors unchanged"
    return checked(name, found, "0 tensors unchanged", f"of {n_weights}", problem, verdict)


def check_losses(
    losses: Array, references: Mapping[str, Array], readings: Sequence[Reading], when: str, leak: Problem
) -> list[Finding]:
    """Is the loss below unigram and counting, and not below the floor? `leak` is one that explains it."""
    loss, unigram, counting, floor = (each.mean() for each in (losses, *references.values()))
    problem: Problem = ("worse-than-counting", f"Above counting {when}: too short or broken.")
    if loss > unigram - NEAR_UNIGRAM:
        name = "worse-than-unigram" if loss > unigram + NEAR_UNIGRAM else "plateau"
        problem = (name, f"Hardly below the unigram or above it, {when}: too short or broken.")
    elif loss <= counting:
        problem = None
    error, n_windows = standard_error(losses - references["floor"], readings)
    z = (loss - floor) / error if error else 0.0
    is_leak = n_windows >= MIN_WINDOWS and z < -LEAK
    below = f"below {counting:.3f} (counting), {unigram:.3f} (unigram)"
    found, evidence = f"{loss:.3f} ({loss - floor:+.3f})", f"z={z:.0f}, {n_windows} windows"
    unknown = "leak", "The model knows more than its inputs show; no change of a batch shows the source."
    return [
        checked("loss at [MASK], counting", f"{loss:.3f}", below, f"{len(losses):,}", problem, Verdict.DIFFERS),
        checked("loss at [MASK], floor", found, f"at least {floor:.3f}", evidence, (leak or unknown) if is_leak else None),
    ]
