"""Findings about what a prediction depends on: its label must not move it, its neighbors must."""

from collections.abc import Sequence
from dataclasses import dataclass

from auditing.finding import Finding, Verdict
from auditing.pipelines.perturbation import BLOCKED, STILL, Effect


@dataclass(frozen=True)
class Rule:
    """A condition on an effect, and the name and the cause of the bug if it does not hold."""

    must_move: bool
    bug: str
    cause: str


LABELS = "The model sees its labels: they reach the decoder or the inputs."
RULES = {
    "the same again": Rule(False, "not-deterministic", "Dropout is active in evaluation, or the model draws."),
    "its label": Rule(False, "leak-labels", LABELS),
    "labels elsewhere": Rule(False, "leak-labels", LABELS),
    "other windows": Rule(False, "attends-over-batch", "Attention runs across the batch: check batch_first."),
    "characters on the left": Rule(True, "no-left-context", "Attention does not reach the left: check its mask."),
    "characters on the right": Rule(True, "no-right-context", "A causal mask hides the right."),
    "order of the characters": Rule(True, "no-positions", "The model has no positions: check their embedding."),
}


def check_dependence(effects: Sequence[Effect], copies: Sequence[str]) -> list[Finding]:
    """A finding per effect of `Perturbation.effects`. `copies` are the tensors that hold the hidden characters.

    If the same batch gives other predictions each time, nothing else can be said. A model that does not use any
    neighbor has one finding for both sides.
    """
    by_name = {effect.name: effect for effect in effects}
    if by_name["the same again"].largest > STILL:
        return [_finding(by_name["the same again"], RULES["the same again"])]
    sides = [by_name[f"characters on the {side}"] for side in ("left", "right")]
    rules = RULES | {
        name: Rule(False, "leak-target", f"The model sees element {name} of the batch, which has the hidden text.")
        for name in copies
    }
    if all(side.largest <= BLOCKED for side in sides):
        cause = "Attention is blocked, so no neighbor changes the prediction: check its mask."
        blocked = Effect("characters on both sides", max(side.largest for side in sides), 0.0)
        left_out = {side.name for side in sides} | {"order of the characters"}
        return [_finding(blocked, Rule(True, "no-context", cause))] + [
            _finding(each, rules.get(each.name)) for each in effects if each.name not in left_out
        ]
    return [_finding(effect, rules.get(effect.name)) for effect in effects]


def _finding(effect: Effect, rule: Rule | None) -> Finding:
    moved = effect.largest > (BLOCKED if rule and rule.must_move else STILL)
    is_wrong = rule is not None and moved != rule.must_move
    is_noise = effect.name == "the same again"
    return Finding(
        f"change of {effect.name}" if not is_noise else "the same batch again",
        found=f"log P moves by {effect.largest:.2g}" if moved else "log P does not move",
        expected="either" if rule is None else "it moves" if rule.must_move else "it does not move",
        evidence=f"{effect.share:.0%}",
        verdict=Verdict.OK if not is_wrong else Verdict.DIFFERS if is_noise else Verdict.BROKEN,
        bug=rule.bug if rule and is_wrong else None,
        cause=rule.cause if rule and is_wrong else "",
    )
