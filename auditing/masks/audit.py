"""The audit of a masking target: measures it, runs all checks, and names the nearest recipe."""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditing.findings import Finding, by_verdict, finding
from auditing.masks.amounts import Expected, check_amounts, check_empty, check_random, check_words
from auditing.masks.battery import Pair, battery, of_lengths
from auditing.masks.judging import judged, without_consequences
from auditing.masks.measure import Measured, measure, measure_batches
from auditing.masks.recipes import Recipe, Structure, nearest_recipe, recipe_named, structure_of
from auditing.masks.repeats import check_repeats, repeats_of
from auditing.masks.rules import check_ids, check_rules
from auditing.masks.tokens import KINDS, MaskOptions
from auditing.process import TargetProcess
from auditing.report import Report, counts_of

# Batches and windows are correlated also if calls or rows have their own rate; tokens by them if positions are.
COARSE = {(outcome, name): rank for outcome in ("selected", "kind") for rank, name in ((1, "batch"), (2, "window"))}
FINE = {"token before": 0.7, "token after": 0.7}


@dataclass(frozen=True)
class MasksReport(Report):
    """The report, with the structure of what is selected; None if nothing is."""

    structure: Structure | None = None


def audit_masks(target: Any, **options: Any) -> MasksReport:
    """Audit a masker in this process; keyword arguments are the fields of `MaskOptions`.

    Raises TargetError if the target is not a masker, and ValueError if an option is invalid.
    """
    import torch  # here, for the command needs it in the target's process only

    from auditing.masks.calls import functions

    stated = MaskOptions(**options)
    check_options(stated)
    calls = functions(target)
    name = getattr(target, "__qualname__", type(target).__qualname__)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        measured = measure(lambda call, *arguments: calls[call](*arguments), stated)
    finally:  # the audit seeds the generators, which are the caller's
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
    return audit_measured(measured, name)


def audit_masks_of(target: str, options: MaskOptions, seconds_per_call: float, is_loader: bool) -> MasksReport:
    """Audit `module:name` or `file.py:name` in a process of its own: a masker, or what makes a loader of batches.
    Raises TargetError and ValueError."""
    check_options(options)
    service = "auditing.masks.loader" if is_loader else "auditing.masks.calls"
    with TargetProcess(target, service, seconds_per_call) as process:
        measured = (measure_batches if is_loader else measure)(process.call, options)
    return audit_measured(measured, target)


def check_options(options: MaskOptions) -> None:
    """Raises ValueError if an option is invalid whatever the target is."""
    if options.recipe:
        recipe_named(options.recipe)
    rate, n_tokens, special = options.rate, options.n_tokens, options.special or ()
    stated = [*special, *(id for id in (options.mask, options.padding) if id is not None)]
    for is_wrong, line in (
        (rate is not None and not 0 < rate < 1, f"the rate is {rate}: state a share between 0 and 1"),
        (
            n_tokens is not None and n_tokens < 2,
            f"n_tokens is {n_tokens}: state the number of tokens with special ones",
        ),
        (not all(isinstance(id, int) for id in special), f"special is {special!r}: state a sequence of ids"),
        (options.seed < 0, f"the seed is {options.seed}: state a whole number from 0"),
        (
            options.workers < 0 or options.workers == 1,
            "state at least 2 workers to compare, or 0 to skip the comparison",
        ),
    ):
        if is_wrong:
            raise ValueError(line)
    if n_tokens is not None and any(not 0 <= id < n_tokens for id in stated):
        raise ValueError(f"the ids {stated} are not all below n_tokens = {n_tokens}")


def audit_measured(measured: Measured, target: str) -> MasksReport:
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
        return MasksReport(title, by_verdict(findings), summary)
    repeats, whole = repeats_of(main, measured.n_passes), measured
    measured = replace(measured, main=repeats.independent(main))
    pairs = battery(measured.main)
    for name, table in measured.others.items():
        pairs += of_lengths(table, name) if table.selected.any() and name != "short" else []
    structure = structure_of(measured.main, pairs)
    expected = expected_of(measured, structure)
    recipe, masks = expected.recipe, "static" if repeats.in_all_calls or repeats.for_same_text else "dynamic"
    findings += [*check_words(measured.main, structure, expected), *check_repeats(whole, repeats)]
    findings += [check_ids(measured.main), *check_random(measured.main)]
    findings += [*dependences(pairs, recipe, structure), *check_amounts(measured, structure, expected)]
    findings = by_verdict(without_consequences(findings))
    summary = f"Nearest recipe: {recipe.name} ({recipe.paper}), masks {masks}. {counts_of(findings)}."
    return MasksReport(title, findings, summary, structure)


def expected_of(measured: Measured, structure: Structure) -> Expected:
    """The rate and the shares by the options, by the target's attributes, or else by the nearest recipe."""
    options, claims = measured.options, measured.facts
    nearest = nearest_recipe(structure.rate.value, structure.shares, structure.unit, structure.varies)
    stated = recipe_named(options.recipe) if options.recipe else None
    rates = (options.rate, stated.rate if stated else None, claims.rate, nearest.rate)
    return Expected(
        next((rate for rate in rates if rate is not None), None),
        stated.shares if stated else claims.shares or nearest.shares,
        bool(options.rate or stated or claims.rate is not None),
        bool(stated or claims.shares),
        stated.name if stated else "the target's own attributes" if claims.shares else nearest.name,
        claims.whole_words or (stated is not None and stated.unit == "word"),
        stated or nearest,
    )


def dependences(pairs: list[Pair], recipe: Recipe, structure: Structure) -> list[Finding]:
    """The dependences that the battery found, the surest first, and a line for what depends on nothing else. What the
    id's parity explains better than the id is a bug of its own; otherwise it follows from the id."""
    surest: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        key = (pair.outcome, pair.circumstance.removesuffix(" parity"))
        by_rule = pair.key == ("selected", "id") and len(pair.found.never)  # ids that are never selected
        if pair.is_found and not by_rule and (key not in surest or pair.z > surest[key].z):
            surest[key] = pair
    rank = {pair: (COARSE.get(pair.key, 0), -pair.z * FINE.get(pair.circumstance, 1)) for pair in surest.values()}
    in_order = sorted(rank, key=lambda pair: rank[pair])
    found = [judged(pair, recipe, structure) for pair in in_order]
    for outcome in ("selected", "kind", "replacement"):
        free = [pair for pair in pairs if pair.outcome == outcome and not pair.is_found]
        names = ", ".join(
            dict.fromkeys(pair.circumstance for pair in free if (outcome, pair.circumstance) not in surest)
        )
        if free:
            evidence = f"{sum(len(pair.found.shares) for pair in free):,} shares"
            found.append(finding(f"{outcome} by anything else", f"not by {names}", "not at all", evidence))
    return found
