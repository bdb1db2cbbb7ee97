"""The audit of a masking target: measures it, runs all checks, judges what was found, and names the
nearest recipe."""

import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from auditing.findings import (
    Finding,
    Verdict,
    by_verdict,
    finding,
    without_consequences,
)
from auditing.masks.amounts import (
    Expected,
    check_amounts,
    check_empty,
    check_random,
    check_words,
)
from auditing.masks.battery import battery, of_lengths
from auditing.masks.measure import OTHERS, Measured, measure, measure_batches
from auditing.masks.pairs import Pair
from auditing.masks.recipes import RECIPES, Recipe, Structure, recipe_named
from auditing.masks.repeats import Repeats, check_repeats
from auditing.masks.rules import check_ids, check_rules
from auditing.masks.tokens import KINDS, MaskOptions
from auditing.process import TargetProcess
from auditing.report import Report, counts_of

COARSE = {"batch": 1, "window": 2}
# positions at each end of a window, where cut spans and words change the rate
EDGE = 10
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
    state = random.getstate()
    state_of_numpy = np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()

    try:  # the audit seeds the generators, which are the caller's
        with torch.random.fork_rng(devices):
            measured = measure(
                lambda name, *arguments: getattr(service, name)(*arguments), stated
            )
    finally:
        random.setstate(state)
        np.random.set_state(state_of_numpy)

    return audit_measured(measured, name)


def audit_masks_of(
    target: str, options: MaskOptions, seconds_per_call: float, is_loader: bool
) -> Report:
    """Audit `module:name` or `file.py:name` in a process of its own: a masker, or what makes a
    loader of batches. Raises TargetError and ValueError."""
    check_options(options)
    service = "auditing.masks.loader" if is_loader else "auditing.masks.calls"
    measure_from = measure_batches if is_loader else measure
    with TargetProcess(target, service, seconds_per_call) as process:
        measured = measure_from(process.call, options)
    return audit_measured(measured, target)


def check_options(options: MaskOptions) -> None:
    """Raises ValueError if an option is invalid whatever the target is."""
    if options.recipe:
        recipe_named(options.recipe)
    special = () if options.special is None else options.special
    if not isinstance(special, Collection) or not all(
        isinstance(id, int) for id in special
    ):
        raise ValueError(f"special is {special!r}: state a sequence of ids")
    if options.rate is not None and not 0 < options.rate < 1:
        raise ValueError(f"the rate is {options.rate}: state a share between 0 and 1")
    if options.kind not in (None, *KINDS):
        kinds = ", ".join(KINDS)
        raise ValueError(f"the kind is {options.kind!r}: choose one of {kinds}")
    if options.seed < 0:
        raise ValueError(f"the seed is {options.seed}: state a whole number from 0")
    if options.workers < 0 or options.workers == 1:
        raise ValueError("state at least 2 workers to compare, or 0 to skip this")
    if options.n_tokens is None:
        return
    if options.n_tokens < 2:
        raise ValueError(
            f"n_tokens is {options.n_tokens}: state the number with special tokens"
        )
    ids = [id for id in (*special, options.mask, options.padding) if id is not None]
    if any(not 0 <= id < options.n_tokens for id in ids):
        raise ValueError(
            f"the ids {ids} are not all below n_tokens = {options.n_tokens}"
        )


def audit_measured(measured: Measured, target: str) -> Report:
    """The findings about what was measured, broken ones first."""
    facts = measured.facts
    main = measured.main
    kind = KINDS.get(facts.kind, "loader of batches")
    title = (
        f"Masks of {target}: a {kind} ({facts.name}), {facts.tokens.n_tokens:,} tokens, "
        f"{main.originals.size:,} positions in windows of {main.originals.shape[2]}"
    )
    findings = list(check_rules(measured))
    hides_nothing = any(each.bug == "nothing-hidden" for each in findings)
    if hides_nothing or not main.selected.any():
        if not hides_nothing:
            findings += check_empty(measured, np.zeros(1))
        summary = f"Nothing is masked and predicted, so no recipe is near. {counts_of(findings)}."
        return Report(title, by_verdict(findings), summary)

    repeats = Repeats(main, measured.n_passes)
    of_repeats = list(check_repeats(measured, repeats))
    measured = replace(measured, main=repeats.independent(main))
    pairs = [*battery(measured.main), *pairs_of_other_texts(measured, repeats)]
    structure = Structure(measured.main, pairs)
    expected = Expected(measured, structure)
    recipe = expected.recipe
    findings += check_words(measured.main, structure, expected)
    findings += of_repeats
    findings.append(check_ids(measured.main))
    findings += check_random(measured.main)
    findings += dependences(pairs, recipe, structure)
    findings += check_amounts(measured, structure, expected)
    findings = by_verdict(without_consequences(findings))
    which = "Stated" if measured.options.recipe else "Nearest"
    masks = "static" if repeats.in_all_calls or repeats.for_same_text else "dynamic"
    named = f"{which} recipe: {recipe.name} ({recipe.paper}), masks {masks}"
    return Report(title, findings, f"{named}. {counts_of(findings)}.")


def pairs_of_other_texts(measured: Measured, repeats: Repeats) -> Iterator[Pair]:
    """The pairs of texts with windows of other lengths."""
    for name, table in measured.others.items():
        if name == "short" and measured.facts.kind == "collator":
            continue  # the places are not sure, because special tokens may be added
        if repeats.for_same_text:  # its passes repeat each other
            n_passes = OTHERS[name][2]
            table = table.part(slice(0, len(table.inputs) // n_passes))
        if table.selected.any():
            yield from of_lengths(table, name)


def dependences(
    pairs: list[Pair], recipe: Recipe, structure: Structure
) -> list[Finding]:
    """The dependences that the battery found, the surest first, and for each outcome a line that
    names the circumstances on which it does not depend."""
    surest = surest_pairs(pairs)
    in_order = sorted(surest.values(), key=rank)
    findings = [judged(pair, recipe, structure) for pair in in_order]

    for outcome in dict.fromkeys(pair.outcome for pair in pairs):
        tested = [
            pair for pair in pairs if pair.outcome == outcome and pair.found.n_tested
        ]
        free = [pair for pair in tested if not pair.is_found]
        names = [pair.circumstance for pair in free if pair.key not in surest]
        if names or not tested:
            text = "too little was measured to tell"
            if names:
                text = f"not by {', '.join(dict.fromkeys(names))}"
            evidence = f"{sum(pair.found.n_tested for pair in free):,} shares tested"
            findings.append(
                finding(f"{outcome} by anything else", text, "not at all", evidence)
            )

    return findings


def surest_pairs(pairs: list[Pair]) -> dict[tuple[str, str], Pair]:
    """The surest dependence for each outcome and circumstance. The parity of an id is the same
    circumstance as the id: the one that explains more is named."""
    by_id = ("selected", "id")
    has_missed_ids = any(pair.key == by_id and pair.found.never for pair in pairs)
    surest: dict[tuple[str, str], Pair] = {}

    for pair in pairs:
        key = (pair.outcome, pair.circumstance.removesuffix(" parity"))
        if not pair.is_found or (
            key == by_id and has_missed_ids
        ):  # `check_ids` names these
            continue
        if key not in surest or pair.z > surest[key].z:
            surest[key] = pair

    return surest


def rank(pair: Pair) -> tuple[int, float]:
    """The order of dependences. Batches and windows come last, because they are correlated also if
    calls or rows have their own rate. Tokens are correlated if positions are."""
    z = pair.z
    if pair.circumstance in ("token before", "token after"):
        z *= 0.7
    if pair.outcome == "replacement":
        return 0, -z
    return COARSE.get(pair.circumstance, 0), -z


def named(pair: Pair) -> str:
    """The name in the catalogue of a dependence that was found; of a new one, the pair itself."""
    if pair.key == ("selected", "position"):
        return named_by_position(pair)
    if pair.key == ("selected", "neighbors"):
        shares = pair.found.shares
        period = int(shares[1:20].argmax()) + 1
        if pair.found.mean < 0.5 and shares[period] > max(0.8, shares[0]):
            return "regular-pattern"
        return "never-neighbors" if shares[0] < pair.found.mean else pair.name
    return "same-mask-in-batch" if pair.key == ("selected", "whole rows") else pair.name


def named_by_position(pair: Pair) -> str:
    """The name of a dependence of the selection on the position."""
    shares = pair.found.shares
    never = pair.found.never
    parts = np.array_split(shares[np.isfinite(shares)], 8)
    eighths = [part.mean() for part in parts if len(part)]
    # Of the part that a limit reaches: a rate that falls ends above 0.
    level = 0.8 if len(never) > 1 else 0.88
    if eighths[-1] < 0.5 * eighths[0] and eighths[1] > level * eighths[0]:
        return "left-truncated"
    if not never:
        return pair.name
    is_at_ends = len(never) <= 2 and {0, 1, len(shares) - 1} & set(never)
    return "first-position" if is_at_ends else "never-selected"


def judged(pair: Pair, recipe: Recipe, structure: Structure) -> Finding:
    """The finding about a dependence: `ok` if the recipe has it, `differs` if only another recipe
    has it that fits what the target selects (tokens, spans or words, and rates that vary or do
    not), else `broken`."""
    bug = named(pair)
    mean = pair.found.mean
    shares = pair.found.shares
    usual = "none"
    if mean:
        usual = f"{mean:.1%}" if pair.along else "as by chance"
    fields: dict[str, Any] = {}
    if len(shares) > 1:
        fields["chart"] = tuple(np.nan_to_num(shares).tolist())
    others = []
    if bug == pair.name and not differs_inside(pair):
        others = [each for each in RECIPES if has_dependence(each, pair, structure)]
    if recipe in others:
        bug = None
    elif others:
        fields["verdict"] = Verdict.DIFFERS
        fields["recipes"] = tuple(each.name for each in others)

    name = f"{pair.outcome} by {pair.circumstance}"
    return finding(name, pair.text(), usual, f"|z| = {pair.z:.1f}", bug, **fields)


def has_dependence(recipe: Recipe, pair: Pair, structure: Structure) -> bool:
    """Whether a recipe that fits what the target selects has a dependence."""
    if recipe.unit not in (structure.unit, "id", "batch"):
        return False
    if recipe.rate is None and not structure.varies:
        return False
    return pair.circumstance in recipe.depends.get(pair.outcome, ())


def differs_inside(pair: Pair) -> bool:
    """Whether rates by position differ where the ends of a window cannot explain it."""
    if pair.circumstance != "position":
        return False
    shares = pair.found.shares
    margin = max(1, min(EDGE, len(shares) // 6))
    if pair.along.startswith("token from"):  # all classes but the last are near an end
        margin = EDGE
    inside = shares[margin:-margin] / max(pair.found.mean, 1e-9)
    return bool((np.abs(inside - 1) > LARGE).any())
