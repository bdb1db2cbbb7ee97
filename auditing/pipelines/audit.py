"""Audits a whole pipeline: trains it on the play for a while, and compares it with what is known exactly."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from auditing.finding import Finding
from auditing.pipelines.batch import Call
from auditing.pipelines.batches import check_batches
from auditing.pipelines.dependence import check_dependence
from auditing.pipelines.evaluation_code import check_evaluation, evaluate, predictors
from auditing.pipelines.evaluation_windows import MIN_SCORED, EvaluationWindows
from auditing.pipelines.known_losses import name_of
from auditing.pipelines.leak import locate
from auditing.pipelines.learning import (
    check_counting,
    check_finite,
    check_floor,
    check_logits,
    check_loss,
    check_unigram,
    check_weights,
)
from auditing.pipelines.levels import compare
from auditing.pipelines.perturbation import Perturbation
from auditing.pipelines.references import Play, References
from auditing.pipelines.windows_read import read_windows
from auditing.process import TargetProcess

N_CHECKED, N_EVALUATED = 16_384, 8_192  # characters of the batches, and of the text for `evaluate`
N_POINTS = 12  # of the loss curve
LONGEST_CALL = 10.0  # seconds of training at once
BATCH_PASSES, PASSES = 20, 20  # forward passes of one evaluation batch, and of all, with the curve and a leak
EVALUATION = 2.0  # how much longer `evaluate` takes than the references
LEAST_SHARE = 0.3  # of the time that is left, for training


@dataclass
class PipelineAudit:
    """The result. `curve` has (training seconds, steps, loss at [MASK] in nats).

    The references are mean losses at the same positions.
    """

    target: str
    facts: dict[str, Any] = field(default_factory=dict)  # of the model and the training
    findings: list[Finding] = field(default_factory=list)
    curve: list[tuple[float, int, float]] = field(default_factory=list)
    unigram: float = np.nan
    counting: float = np.nan
    floor: float = np.nan


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
    audit.facts = call("make_model", play.training, play.validation, play.tokens.characters, seed)
    announce(
        f"{audit.facts['model']} with {audit.facts['n_weights']:,} weights, {audit.facts['optimizer']}: trains on the"
        f" play and is measured, until about {max(end - time.monotonic(), 0):.0f} seconds from now"
    )
    training = [
        read_windows(batch, play.training, play.tokens) for batch in call("make_batches", True, N_CHECKED, seed)
    ]
    windows = EvaluationWindows.of_batches(call, play, call("make_batches", False, N_CHECKED, seed + 1))
    audit.findings += check_batches(training, play.tokens, training=True)
    audit.findings += check_batches(windows.readings, play.tokens, training=False)
    if windows.n_scored < MIN_SCORED:
        announce("the evaluation batches hide too little: the audit hides 15% of their characters itself")
        windows = windows.masked_anew(seed)
    before = time.monotonic()
    references = windows.references()
    if audit.facts["evaluates"]:
        end -= EVALUATION * (time.monotonic() - before)
    for name in ("unigram", "counting", "floor"):
        setattr(audit, name, float(getattr(references, name).mean()))
    losses = _train(call, windows, audit, end)
    audit.findings.append(check_finite(losses))
    if np.isfinite(losses[-1]):
        unchanged, n_weights = call("unchanged")
        audit.findings.append(check_weights(unchanged, n_weights, len(losses)))
    _measure(windows, references, audit, seed)
    if audit.facts["evaluates"]:
        audit.findings += _evaluation(call, play, seed)
    return audit


def _train(call: Call, windows: EvaluationWindows, audit: PipelineAudit, end: float) -> list[float]:
    """Train until it is time to measure; fills the curve. Returns the losses of the steps."""
    begin = time.monotonic()
    audit.curve.append((0.0, 0, float(windows.losses().mean())))
    one_pass = time.monotonic() - begin
    rest = end - time.monotonic()
    after = (BATCH_PASSES / len(windows.held) + PASSES) * one_pass
    seconds = max(rest - after, LEAST_SHARE * rest, 0.0)
    trained, steps, n_ids = 0.0, 0, 0
    losses: list[float] = []
    for point in seconds * np.linspace(0, 1, N_POINTS + 1)[1:] ** 2:  # more points early on
        while trained < point or not losses:
            before = time.monotonic()
            done = call("train", min(point - trained, LONGEST_CALL))
            trained += time.monotonic() - before
            steps, n_ids = done["steps"], n_ids + done["ids"]
            losses += done["losses"]
            if not np.isfinite(losses[-1]):
                break
        audit.curve.append((trained, steps, float(windows.losses().mean())))
        if not np.isfinite(losses[-1]):
            break
    audit.facts |= {"steps": steps, "training_seconds": trained, "tokens": n_ids}
    return losses


def _measure(windows: EvaluationWindows, references: References, audit: PipelineAudit, seed: int) -> None:
    measured = [windows.measured(held) for held in windows.held if held.reading.labelled.any()]
    characters = windows.play.tokens.names[: windows.play.tokens.n_ordinary]
    of_batches = [each for each, _ in measured]
    audit.findings.append(check_loss(of_batches, name_of(of_batches, characters)))
    audit.findings.append(check_logits(any(are for _, are in measured)))
    losses = windows.losses()
    if not np.isfinite(losses).all():
        return
    when = f"after {audit.facts['training_seconds'] / 60:.1f} minutes ({audit.facts['steps']:,} steps)"
    levels = {
        name: compare(losses, getattr(references, name), references.windows)
        for name in ("unigram", "counting", "floor")
    }
    perturbations = [
        Perturbation(partial(windows.log_probs, held), held.batch, held.reading, len(characters), seed)
        for held in windows.held
    ]
    source = locate(windows, references, perturbations, seed) if levels["floor"].is_leak else None
    audit.findings += [
        check_unigram(levels["unigram"], when),
        check_counting(levels["counting"], when),
        check_floor(levels["floor"], source),
    ]
    first = max(perturbations, key=lambda each: len(each.rows))
    audit.findings += check_dependence(first.effects(), first.copies_of_text())


def _evaluation(call: Call, play: Play, seed: int) -> list[Finding]:
    text = play.validation[:N_EVALUATED]
    named = predictors(play).items()
    return check_evaluation({name: evaluate(call, each, text, play.tokens, seed) for name, each in named}, play.tokens)
