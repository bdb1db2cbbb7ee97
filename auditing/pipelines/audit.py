"""Audits a whole pipeline: first the checks without training, then a training on the play, compared
with the floor."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from auditing.errors import TargetError
from auditing.findings import Finding, Verdict, finding
from auditing.masks.texts import Masked
from auditing.pipelines.batches import (
    check_others,
    check_rebuilt,
    check_table,
    table_of,
)
from auditing.pipelines.predictions import Predictions, check_loss, check_predictions
from auditing.pipelines.references import Play, check_losses
from auditing.pipelines.target_batch import Array, Call
from auditing.process import TargetProcess
from auditing.report import Report, counts_of

N_TEXT = 100_000  # characters of the training text
N_CHECKED = 16_384  # characters of the batches that are checked
MIN_SCORED = 100  # hidden positions; with fewer, the training batches are measured
# the standard deviation of noise on the weights for checks without training
SHAKEN = 0.02
LONGEST_CALL = 1.0  # seconds of training at once, far below any limit of a call
LEFT_OUT = 0.5  # the share of weight tensors that a pipeline may leave as they are


def audit_pipeline(
    target: str,
    minutes: float,
    seed: int,
    seconds: float,
    announce: Callable[[str], None],
) -> Report:
    """Audit the target in a process of its own, within some minutes. Raises TargetError if that is
    not possible."""
    end = time.monotonic() + 60 * minutes
    with TargetProcess(target, "auditing.pipelines.calls", seconds) as process:
        return audit_with(process.call, target, Play(), end, seed, announce)


def audit_with(
    call: Call,
    target: str,
    play: Play,
    end: float,
    seed: int,
    announce: Callable[[str], None],
) -> Report:
    """The audit until `end` (monotonic), of a pipeline whose functions `call` reaches."""
    facts = call("make_model", play.training, play.tokens.characters, seed)
    findings, measured = _without_training(call, play, seed)
    wrong = [each for each in findings if each.verdict != Verdict.OK]
    for each in wrong:
        announce(each.line())
    announce(
        f"{len(findings)} checks without training, {len(findings) - len(wrong)} of them ok"
    )
    if not measured.table.masked.any():
        if any(each.verdict == Verdict.BROKEN for each in wrong):
            return Report(
                f"Pipeline {target}: {facts['model']}, not trained",
                findings,
                f"{counts_of(findings)}.",
            )
        raise TargetError(
            "no training and no evaluation batch hides a labelled character with [MASK]"
        )

    announce(
        f"{facts['model']} trains until about {max(end - time.monotonic(), 0):.0f} seconds from now"
    )
    references = play.references(measured.table)
    losses = _train(call, measured, end)
    findings.append(_check_training(losses, *call("unchanged")))
    if np.isfinite(losses[-1]):
        leaks = [
            each.bug
            for each in wrong
            if each.bug and each.bug.startswith(("leak", "attends"))
        ]
        findings += check_losses(
            measured.losses(), references, measured.table, *leaks[:1]
        )

    title = "Pipeline {0}: {model}, {n_weights:,} weights, {optimizer}; trained on the play for {1:,} steps"
    exact = ", ".join(
        f"{name} {values.mean():.3f}" for name, values in references.items()
    )
    summary = f"Exact losses at [MASK], in nats per character: {exact}. {counts_of(findings)}."
    return Report(title.format(target, len(losses), **facts), findings, summary)


def _without_training(
    call: Call, play: Play, seed: int
) -> tuple[list[Finding], Predictions]:
    """All findings that need no training, and the predictions to measure after it."""
    call("shake", SHAKEN)
    findings = list[Finding]()
    every = list[Predictions]()

    for which, text in (
        ("training", play.training[:N_TEXT]),
        ("evaluation", play.validation),
    ):

        def build(
            name: str, text: Array, is_training: bool = which == "training"
        ) -> list[Masked]:
            return call(
                "make_batches",
                name,
                text,
                is_training,
                N_CHECKED,
                seed + (not is_training),
            )

        batches = build(which, text)
        table = table_of(batches, text, play.tokens)
        every.append(Predictions(call, which, batches, table))
        findings += check_table(batches, table, play.tokens, which)
        if table.masked.any():
            found, rebuilt = check_rebuilt(every[-1], build, text, play.tokens)
            findings += [found, *check_others(every[-1], rebuilt)]

    measured = every[1] if every[1].table.masked.sum() >= MIN_SCORED else every[0]
    if measured.table.masked.any():
        findings.append(check_loss(measured, play.tokens))
        findings += check_predictions(measured, play.tokens.n_ordinary, seed)

    call("shake", 0.0)
    return findings, measured


def _train(call: Call, measured: Predictions, end: float) -> list[float]:
    """Train until it is time to measure. Returns the losses of the steps."""
    began = time.monotonic()
    measured.losses()  # takes as long as it will take after training
    end -= time.monotonic() - began
    losses: list[float] = []
    while not losses or (np.isfinite(losses[-1]) and time.monotonic() < end):
        losses += call("train", min(end - time.monotonic(), LONGEST_CALL))
    return losses


def _check_training(
    losses: Sequence[float], unchanged: Sequence[str], n_weights: int
) -> Finding:
    """Are all losses numbers, and do the weights change?"""
    bug = (
        "weights-unchanged"
        if len(unchanged) == n_weights > 0
        else "weights-left-out"
        if unchanged
        else None
    )
    is_broken = len(unchanged) > LEFT_OUT * n_weights
    some = f" ({', '.join(unchanged[:3])} ...)" if unchanged else ""
    if not np.isfinite(losses[-1]):
        bug = "not-finite"
        is_broken = True
    found = f"loss {losses[-1]:.3f}, {len(unchanged)} of {n_weights} tensors unchanged{some}"
    fields = (
        {"verdict": Verdict.BROKEN if is_broken else Verdict.DIFFERS} if bug else {}
    )
    return finding(
        "training",
        found,
        "a finite loss, 0 unchanged",
        f"{len(losses):,} steps",
        bug,
        **fields,
    )
