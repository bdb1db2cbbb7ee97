"""The audit of a masking target: measures it, runs all checks, judges what was found, and names the
nearest recipe."""

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from auditing.findings import Finding, Verdict, by_verdict, finding, without_consequences
from auditing.masks.amounts import Expected, check_amounts, check_empty, check_random, check_words
from auditing.masks.battery import battery, of_lengths
from auditing.masks.measure import OTHERS, Measured, measure, measure_batches
from auditing.masks.pairs import Pair
from auditing.masks.recipes import RECIPES, Recipe, Structure, recipe_named
from auditing.masks.repeats import Repeats, check_repeats
from auditing.masks.rules import check_ids, check_rules
from auditing.masks.tokens import KINDS, MaskOptions
from auditing.process import TargetProcess
from auditing.report import Report, counts_of

# Batches and windows are correlated also if calls or rows have their own rate; tokens by them if
# positions are.
COARSE = {
    (outcome, name): rank
    for outcome in ("selected", "kind")
    for rank, name in ((1, "batch"), (2, "window"))
}
FINE = {"token before": 0.7, "token after": 0.7}
EDGE = 10  # positions at each end of a window, where cut spans and words change the rate
LARGE = 0.5  # the relative difference of a rate elsewhere that such cuts do not explain


def audit_masks(target: Any, **options: Any) -> Report:
    """Audit a masker in this process; keyword arguments are the fields of `MaskOptions`.

    Raises TargetError if the target is not a masker, and ValueError if an option is invalid.
    """
    import torch  # here, for the command needs it in the target's process only

    from auditing.masks.calls import Service

    stated = MaskOptions(**options)
    check_options(stated)
    service = Service(target)
    name = getattr(target, "__qualname__", type(target).__qualname__)
    states = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:  # the audit seeds the generators, which are the caller's
        with torch.random.fork_rng(devices):
            measured = measure(lambda name, *arguments: getattr(service, name)(*arguments), stated)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return audit_measured(measured, name)


def audit_masks_of(
    target: str, options: MaskOptions, seconds_per_call: float, is_loader: bool
) -> Report:
    """Audit `module:name` or `file.py:name` in a process of its own: a masker, or what makes a
    loader of batches. Raises TargetError and ValueError."""
    check_options(options)
    service = "auditing.masks.loader" if is_loader else "auditing.masks.calls"
    with TargetProcess(target, service, seconds_per_call) as process:
        measured = (measure_batches if is_loader else measure)(process.call, options)
    return audit_measured(measured, target)


def check_options(options: MaskOptions) -> None:
    """Raises ValueError if an option is invalid whatever the target is."""
    if options.recipe:
        recipe_named(options.recipe)
    rate, n_tokens, special = (
        options.rate,
        options.n_tokens,
        () if options.special is None else options.special,
    )
    if not isinstance(special, Collection) or not all(isinstance(id, int) for id in special):
        raise ValueError(f"special is {special!r}: state a sequence of ids")
    stated = [*special, *(id for id in (options.mask, options.padding) if id is not None)]
    for is_wrong, line in (
        (
            rate is not None and not 0 < rate < 1,
            f"the rate is {rate}: state a share between 0 and 1",
        ),
        (
            n_tokens is not None and n_tokens < 2,
            f"n_tokens is {n_tokens}: state the number with special tokens",
        ),
        (
            options.kind not in (None, *KINDS),
            f"the kind is {options.kind!r}: choose one of {', '.join(KINDS)}",
        ),
        (options.seed < 0, f"the seed is {options.seed}: state a whole number from 0"),
        (
            options.workers < 0 or options.workers == 1,
            "state at least 2 workers to compare, or 0 to skip this",
        ),
    ):
        if is_wrong:
            raise ValueError(line)
    if n_tokens is not None and any(not 0 <= id < n_tokens for id in stated):
        raise ValueError(f"the ids {stated} are not all below n_tokens = {n_tokens}")


def audit_measured(measured: Measured, target: str) -> Report:
    """The findings about what was measured, broken ones first."""
    facts, main = measured.facts, measured.main
    kind, shape = KINDS.get(facts.kind, "loader of batches"), main.originals.shape
    title = f"Masks of {target}: a {kind} ({facts.name}), {facts.tokens.n_tokens:,} tokens, "
    title += f"{main.originals.size:,} positions in windows of {shape[2]}"
    findings = list(check_rules(measured))
    hides_tokens = not any(each.bug == "nothing-hidden" for each in findings)
    if not hides_tokens or not main.selected.any():
        findings += check_empty(measured, np.zeros(1)) if hides_tokens else []
        summary = f"Nothing is masked and predicted, so no recipe is near. {counts_of(findings)}."
        return Report(title, by_verdict(findings), summary)
    repeats, whole = Repeats(main, measured.n_passes), measured
    measured = replace(measured, main=repeats.independent(main))
    pairs = battery(measured.main)
    for name, table in measured.others.items():
        if repeats.for_same_text:  # its passes repeat each other
            table = table.part(slice(0, len(table.inputs) // OTHERS[name][2]))
        is_sure = (
            name != "short" or facts.kind != "collator"
        )  # of the places, where special tokens may be added
        pairs += of_lengths(table, name) if table.selected.any() and is_sure else []
    structure = Structure(measured.main, pairs)
    expected = Expected(measured, structure)
    recipe, masks = (
        expected.recipe,
        "static" if repeats.in_all_calls or repeats.for_same_text else "dynamic",
    )
    findings += [*check_words(measured.main, structure, expected), *check_repeats(whole, repeats)]
    findings += [check_ids(measured.main), *check_random(measured.main)]
    findings += [
        *dependences(pairs, recipe, structure),
        *check_amounts(measured, structure, expected),
    ]
    findings, which = (
        by_verdict(without_consequences(findings)),
        "Stated" if measured.options.recipe else "Nearest",
    )
    summary = (
        f"{which} recipe: {recipe.name} ({recipe.paper}), masks {masks}. {counts_of(findings)}."
    )
    return Report(title, findings, summary)


def dependences(pairs: list[Pair], recipe: Recipe, structure: Structure) -> list[Finding]:
    """The dependences that the battery found, the surest first, and a line for what depends on
    nothing else. What the id's parity explains better than the id is a bug of its own; otherwise it
    follows from the id."""
    surest: dict[tuple[str, str], Pair] = {}
    has_missed_ids = any(pair.key == ("selected", "id") and len(pair.found.never) for pair in pairs)
    for pair in pairs:
        key = (pair.outcome, pair.circumstance.removesuffix(" parity"))
        by_rule = key == ("selected", "id") and has_missed_ids  # `check_ids` names them
        if pair.is_found and not by_rule and (key not in surest or pair.z > surest[key].z):
            surest[key] = pair
    rank = {
        pair: (COARSE.get(pair.key, 0), -pair.z * FINE.get(pair.circumstance, 1))
        for pair in surest.values()
    }
    in_order = sorted(rank, key=lambda pair: rank[pair])
    found = [judged(pair, recipe, structure) for pair in in_order]
    for outcome in dict.fromkeys(pair.outcome for pair in pairs):
        free = [
            pair
            for pair in pairs
            if pair.outcome == outcome and pair.found.n_tested and not pair.is_found
        ]
        names = dict.fromkeys(
            pair.circumstance for pair in free if (outcome, pair.circumstance) not in surest
        )
        if names or not any(pair.found.n_tested for pair in pairs if pair.outcome == outcome):
            line = f"not by {', '.join(names)}" if names else "too little was measured to tell"
            evidence = f"{sum(pair.found.n_tested for pair in free):,} shares tested"
            found.append(finding(f"{outcome} by anything else", line, "not at all", evidence))
    return found


def named(pair: Pair) -> str:
    """The name in the catalogue of a dependence that was found; of a new one, the pair itself."""
    zeros, shares = pair.found.never, pair.found.shares
    if pair.key == ("selected", "position"):
        eighths = [
            part.mean() for part in np.array_split(shares[np.isfinite(shares)], 8) if len(part)
        ]
        level = (
            0.8 if len(zeros) > 1 else 0.88
        )  # of the part that a limit reaches: a rate that falls ends above 0
        if eighths[-1] < 0.5 * eighths[0] and eighths[1] > level * eighths[0]:
            return "left-truncated"
        at_ends = len(zeros) <= 2 and bool({0, 1, len(shares) - 1} & set(zeros))
        return ("first-position" if at_ends else "never-selected") if len(zeros) else pair.name
    if pair.key == ("selected", "neighbors"):
        best = int(shares[1:20].argmax()) + 1
        if pair.found.mean < 0.5 and shares[best] > max(0.8, shares[0]):
            return "regular-pattern"
        return "never-neighbors" if shares[0] < pair.found.mean else pair.name
    return "same-mask-in-batch" if pair.key == ("selected", "whole rows") else pair.name


def judged(pair: Pair, recipe: Recipe, structure: Structure) -> Finding:
    """The finding about a dependence: all right if the recipe has it, `differs` if only another one
    has, and that one fits what the target selects: tokens, spans or words, and rates that vary or
    do not."""
    bug, mean, shares = named(pair), pair.found.mean, pair.found.shares
    is_edge = pair.along.startswith("token from")  # all classes but the last are near an end
    margin = EDGE if is_edge else max(1, min(EDGE, len(shares) // 6))
    inside = (
        np.abs(shares[margin:-margin] / max(mean, 1e-9) - 1)
        if pair.circumstance == "position"
        else np.zeros(1)
    )
    known = (
        bug == pair.name and not (inside > LARGE).any()
    )  # which the ends of a window cannot explain
    units = (structure.unit, "id", "batch")
    having = [each for each in RECIPES if pair.circumstance in each.depends.get(pair.outcome, ())]
    fitting = [
        each
        for each in having
        if each.unit in units and (each.rate is not None or structure.varies)
    ]
    others = fitting if known else []
    usual = "none" if not mean else f"{mean:.1%}" if pair.along else "as by chance"
    line = f"{pair.outcome} by {pair.circumstance}", pair.text(), usual, f"|z| = {pair.z:.1f}"
    fields: dict[str, Any] = {
        "chart": tuple(np.nan_to_num(shares).tolist()) if len(shares) > 1 else ()
    }
    if recipe in others:
        return finding(*line, **fields)
    if others:
        fields |= {"verdict": Verdict.DIFFERS, "recipes": tuple(each.name for each in others)}
    return finding(*line, bug, **fields)
