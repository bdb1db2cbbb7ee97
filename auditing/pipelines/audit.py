"""Audits a whole pipeline: what needs no training first, then trains it on the play and compares it with the floor."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.pipelines.batches import Problem, check_batches
from auditing.pipelines.evaluation_code import check_evaluation
from auditing.pipelines.learning import check_finite, check_losses, check_weights
from auditing.pipelines.play_tokens import Array
from auditing.pipelines.predictions import Predictions, check_loss, check_predictions
from auditing.pipelines.rebuilt import check_rebuilt
from auditing.pipelines.references import Play
from auditing.pipelines.target_batch import Batch, Call
from auditing.pipelines.windows_read import read_windows
from auditing.process import TargetProcess

N_CHECKED, N_EVALUATED = 16_384, 8_192  # characters of the batches, and of the text for `evaluate`
MIN_SCORED = 100  # hidden positions; with fewer, the training batches are measured
N_POINTS = 12  # of the loss curve
LONGEST_CALL = 10.0  # seconds of training at once


@dataclass
class PipelineAudit:
    """The result. `curve` has (training seconds, steps, loss at [MASK] in nats).

    The references are mean losses at the same positions.
    """

    target: str
    facts: dict[str, Any] = field(default_factory=dict)  # of the model and the training
    findings: list[Finding] = field(default_factory=list)
    curve: list[tuple[float, int, float]] = field(default_factory=list)
    references: dict[str, float] = field(default_factory=dict)  # unigram, counting, floor


def audit_pipeline(
    target: str, minutes: float, seed: int, seconds_per_call: float, announce: Callable[[str], None]
) -> PipelineAudit:
    """Train and measure the target in a process of its own, within some minutes.

    Raises TargetError if it cannot be audited.
    """
    end = time.monotonic() + 60 * minutes
    with TargetProcess(target, "auditing.pipelines.calls", seconds_per_call) as process:
        return audit_with(process.call, target, Play(), end, seed, announce)


def audit_with(
    call: Call, target: str, play: Play, end: float, seed: int, announce: Callable[[str], None]
) -> PipelineAudit:
    """The audit until `end` (monotonic), of a pipeline whose functions `call` reaches."""
    audit = PipelineAudit(target)
    audit.facts = call("make_model", play.training, play.tokens.characters, seed)
    measured = _without_training(call, play, seed, audit)
    for finding in audit.findings:
        if finding.verdict != Verdict.OK:
            announce(finding.line())
    n_wrong = sum(finding.verdict != Verdict.OK for finding in audit.findings)
    announce(
        f"{len(audit.findings)} checks without training: {n_wrong or 'none'} not ok. {audit.facts['model']} with"
        f" {audit.facts['n_weights']:,} weights trains until about {max(end - time.monotonic(), 0):.0f} seconds from now"
    )
    references = play.references(measured.readings)
    audit.references = {name: float(losses.mean()) for name, losses in references.items()}
    losses = _train(call, measured, audit, end)
    audit.findings.append(check_finite(losses))
    if np.isfinite(losses[-1]):
        audit.findings.append(check_weights(*call("unchanged"), len(losses)))
        when = f"after {audit.facts['training_seconds'] / 60:.1f} minutes ({len(losses):,} steps)"
        leaks = [each for each in audit.findings if each.bug and each.bug.startswith(("leak-", "attends"))]
        leak: Problem = (leaks[0].bug or "", leaks[0].cause) if leaks else None
        audit.findings += check_losses(measured.losses(), references, measured.readings, when, leak)
    return audit


def _without_training(call: Call, play: Play, seed: int, audit: PipelineAudit) -> Predictions:
    """Fill in all findings that need no training; returns the predictions to measure after it."""
    call("shake")
    every = []
    for name, training in (("training", True), ("evaluation", False)):
        text = play.training if training else play.validation

        def build(name: str, text: Array, training: bool = training) -> list[Batch]:
            return call("make_batches", name, text, training, N_CHECKED, seed + (not training))

        batches = build(name, text)
        readings = [read_windows(batch, text, play.tokens) for batch in batches]
        every.append(Predictions(call, name, batches, readings))
        audit.findings += check_batches(readings, play.tokens, name)
        if every[-1].n_scored:
            audit.findings += check_rebuilt(every[-1], build, text, play.tokens, seed)
    measured = every[1] if every[1].n_scored >= MIN_SCORED else every[0]
    audit.findings += check_loss(measured, play.tokens, seed)
    if measured.n_scored:
        audit.findings += check_predictions(measured, play.tokens.n_ordinary, seed)
    if audit.facts["evaluates"]:
        audit.findings.append(check_evaluation(call, play.validation[:N_EVALUATED], play.tokens, seed))
    call("restore")
    return measured


def _train(call: Call, measured: Predictions, audit: PipelineAudit, end: float) -> list[float]:
    """Train until it is time to measure; fills the curve. Returns the losses of the steps."""
    begin = time.monotonic()
    audit.curve.append((0.0, 0, float(measured.losses().mean())))
    one_pass = time.monotonic() - begin
    seconds = max(end - time.monotonic() - N_POINTS * one_pass, 0.0)
    trained, steps, n_ids = 0.0, 0, 0
    losses: list[float] = []
    for point in seconds * np.linspace(0, 1, N_POINTS + 1)[1:] ** 2:  # more points early on
        while (trained < point or not losses) and np.isfinite(losses[-1:]).all():
            before = time.monotonic()
            done = call("train", min(point - trained, LONGEST_CALL))
            trained += time.monotonic() - before
            steps, n_ids = done["steps"], n_ids + done["ids"]
            losses += done["losses"]
        audit.curve.append((trained, steps, float(measured.losses().mean())))
    audit.facts |= {"steps": steps, "training_seconds": trained, "tokens": n_ids}
    return losses
