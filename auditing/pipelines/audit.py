"""Audits a whole pipeline: what needs no training first, then trains it on the play and compares it with the floor."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditing.errors import TargetError
from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, check_batches, check_rebuilt, checked
from auditing.pipelines.predictions import Predictions, check_loss, check_others, check_predictions
from auditing.pipelines.references import Play, check_losses
from auditing.pipelines.target_batch import Array, Batch, Call
from auditing.pipelines.windows_read import read_windows
from auditing.process import TargetProcess

N_CHECKED = 16_384  # characters of the batches
MIN_SCORED = 100  # hidden positions; with fewer, the training batches are measured
SHAKEN = 0.02  # the standard deviation of noise on the weights for checks without training
N_POINTS = 12  # of the loss curve
LONGEST_CALL = 10.0  # seconds of training at once
LEFT_OUT = 0.5  # the share of weight tensors that a pipeline may leave as they are
Announce = Callable[[str], None]


@dataclass
class PipelineAudit:
    """The result. `curve` has (training seconds, steps, loss at [MASK] in nats), `references` the mean exact losses."""

    target: str
    facts: dict[str, Any] = field(default_factory=dict)  # of the model and the training
    findings: list[Finding] = field(default_factory=list)
    curve: list[tuple[float, int, float]] = field(default_factory=list)
    references: dict[str, float] = field(default_factory=dict)  # unigram, floor


def audit_pipeline(target: str, minutes: float, seed: int, seconds: float, announce: Announce) -> PipelineAudit:
    """Audit the target in a process of its own, within some minutes. Raises TargetError if that is not possible."""
    end = time.monotonic() + 60 * minutes
    with TargetProcess(target, "auditing.pipelines.calls", seconds) as process:
        return audit_with(process.call, target, Play(), end, seed, announce)


def audit_with(call: Call, target: str, play: Play, end: float, seed: int, announce: Announce) -> PipelineAudit:
    """The audit until `end` (monotonic), of a pipeline whose functions `call` reaches."""
    facts = call("make_model", play.training, play.tokens.characters, seed)
    audit = PipelineAudit(target, facts)
    measured = _without_training(call, play, seed, audit)
    wrong = [finding for finding in audit.findings if finding.verdict != Verdict.OK]
    for finding in wrong:
        announce(finding.line())
    announce(f"{len(audit.findings)} checks without training, {len(audit.findings) - len(wrong)} of them ok")
    announce(f"{facts['model']} trains until about {max(end - time.monotonic(), 0):.0f} seconds from now")
    if not measured.n_scored:
        raise TargetError("no training and no evaluation batch hides a labelled character with [MASK]")
    references = play.references(measured.readings)
    audit.references = {name: float(losses.mean()) for name, losses in references.items()}
    losses = _train(call, measured, audit, end)
    audit.findings.append(_check_training(losses, *call("unchanged")))
    if np.isfinite(losses[-1]):
        when = f"after {facts['training_seconds'] / 60:.1f} minutes ({len(losses):,} steps)"
        leaks = [(each.bug, each.cause) for each in wrong if each.bug and each.bug.startswith(("leak", "attends"))]
        audit.findings += check_losses(measured.losses(), references, measured.readings, when, next(iter(leaks), None))
    return audit


def _without_training(call: Call, play: Play, seed: int, audit: PipelineAudit) -> Predictions:
    """Fill in all findings that need no training; returns the predictions to measure after it."""
    call("shake", SHAKEN)
    every = []
    for which, text in (("training", play.training), ("evaluation", play.validation)):

        def build(name: str, text: Array, is_training: bool = which == "training") -> list[Batch]:
            return call("make_batches", name, text, is_training, N_CHECKED, seed + (not is_training))

        batches = build(which, text)
        readings = [read_windows(batch, text, play.tokens) for batch in batches]
        every.append(Predictions(call, which, batches, readings))
        audit.findings += check_batches(readings, play.tokens, which)
        if every[-1].n_scored:
            finding, rebuilt = check_rebuilt(batches, readings, build, text, play.tokens, which)
            audit.findings += [finding, *check_others(every[-1], rebuilt)]
    measured = every[1] if every[1].n_scored >= MIN_SCORED else every[0]
    if measured.n_scored:
        audit.findings.append(check_loss(measured, play.tokens))
        audit.findings += check_predictions(measured, play.tokens.n_ordinary, seed)
    call("shake", 0.0)
    return measured


def _train(call: Call, measured: Predictions, audit: PipelineAudit, end: float) -> list[float]:
    """Train until it is time to measure; fills the curve. Returns the losses of the steps."""
    begin = time.monotonic()
    audit.curve.append((0.0, 0, float(measured.losses().mean())))
    seconds = max(end - time.monotonic() - N_POINTS * (time.monotonic() - begin), 0.0)
    trained, losses = 0.0, list[float]()
    for point in seconds * np.linspace(0, 1, N_POINTS + 1)[1:] ** 2:  # more points early on
        while (trained < point or not losses) and np.isfinite(losses[-1:]).all():
            before = time.monotonic()
            losses += call("train", min(point - trained, LONGEST_CALL))
            trained += time.monotonic() - before
        audit.curve.append((trained, len(losses), float(measured.losses().mean())))
    audit.facts |= {"steps": len(losses), "training_seconds": trained}
    return losses


def _check_training(losses: Sequence[float], unchanged: Sequence[str], n_weights: int) -> Finding:
    """Are all losses numbers, and do the weights change?"""
    n, some = len(losses), ", ".join(unchanged[:3]) + (", ..." if len(unchanged) > 3 else "")
    problem: Problem = ("weights-left-out", f"Frozen, unused, or not in the optimizer: {some}.") if unchanged else None
    if len(unchanged) == n_weights > 0:
        problem = "weights-unchanged", "The learning rate is 0, or the loss is detached from the weights."
    if not np.isfinite(losses[-1]):
        problem = "not-finite", f"At step {n:,}: a batch without labels, or a learning rate that is too high."
    is_broken = not np.isfinite(losses[-1]) or len(unchanged) > LEFT_OUT * n_weights
    found, expected = f"loss {losses[-1]:.3f}, {len(unchanged)} tensors unchanged", "a finite loss, 0 unchanged"
    verdict = Verdict.BROKEN if is_broken else Verdict.DIFFERS
    return checked(f"training, {n:,} steps", found, expected, f"of {n_weights}", problem, verdict)
