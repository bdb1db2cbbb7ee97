"""The audit of a masking target: measures it, runs all checks, and names the nearest recipe."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from auditing.finding import Finding, Verdict
from auditing.masks.calls import functions
from auditing.masks.labels import check_arguments, check_labels
from auditing.masks.measure import Measured, measure
from auditing.masks.positions import check_columns, check_ids, check_neighbors
from auditing.masks.randomness import check_randomness
from auditing.masks.recipes import Recipe, nearest_recipe, recipe_named
from auditing.masks.replacements import check_mask, check_random
from auditing.masks.selection import check_counts, check_empty, check_rate
from auditing.masks.shares import check_shares, found_shares
from auditing.masks.structure import Structure, structure_of
from auditing.masks.tokens import MaskOptions
from auditing.masks.words import check_words
from auditing.process import TargetProcess
from auditing.report import Report

KIND_NAMES = {"tensor": "function of a tensor", "collator": "data collator", "dict": "function of a batch dict"}
# Bugs that are only consequences of another one, and are then not reported as bugs.
SHARES = {"other-shares", "overlapping-draws", "kept-without-label", "random-share", "never-random"}
RATES = {"too-few-selected", "too-many-selected"}
CONSEQUENCES = {
    "labels-everywhere": {"kept-without-label"},
    "kept-without-label": RATES,
    "labels-shifted": SHARES | RATES | {"position-dependent", "first-position", "never-selected", "empty-windows"},
    "changed-without-label": SHARES | RATES,
    "left-truncated": {"position-dependent", "empty-windows"} | RATES,
    "padding-is-character": {"changed-without-label", "left-truncated"} | RATES,
    "mask-is-ordinary": {"replacement-range", "not-uniform"} | SHARES,
    "position-dependent": {"empty-windows"} | RATES,
    "padding-labelled": {"empty-windows"},
    "rounded-down": {"empty-windows"},
    "words-joined": {"empty-windows", "same-mask-in-batch", "static-masks", "same-masks-per-worker"} | RATES,
    "regular-pattern": {"same-mask-in-batch", "static-masks"},
    "dtype-overflow": {"changed-without-label", "left-truncated", "padding-is-character", "never-selected"} | RATES,
    "word-part-left": {"never-selected", "position-dependent", "first-position"} | RATES,
}


@dataclass(frozen=True)
class MasksAudit:
    """A finished audit of masks."""

    measured: Measured
    findings: list[Finding]
    structure: Structure | None  # None if nothing is selected
    recipe: Recipe | None  # the nearest
    target: str

    @property
    def report(self) -> Report:
        facts, measured = self.measured.facts, self.measured
        title = (
            f"Masks of {self.target}: a {KIND_NAMES[facts.kind]} ({facts.claims.name}), {facts.tokens.n_tokens:,} "
            f"tokens, {measured.n_positions:,} positions in windows of {measured.main.originals.shape[2]}"
        )
        return Report(title, self.findings, self.summary)

    @property
    def summary(self) -> str:
        """The nearest recipe, and how many findings there are of each verdict."""
        counts = {verdict: sum(finding.verdict == verdict for finding in self.findings) for verdict in Verdict}
        text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        if self.recipe is None or self.structure is None:
            return f"Nothing is masked and predicted, so no recipe is near. {text}."
        dynamic = "static" if any(finding.bug == "static-masks" for finding in self.findings) else "dynamic"
        name, paper = self.recipe.name, self.recipe.paper
        if name == "BERT" and dynamic == "dynamic":
            name, paper = "RoBERTa", "Liu et al. 2019"
        return f"Nearest recipe: {name} ({paper}), masks {dynamic}. {text}."


def audit_masks(target: Any, **options: Any) -> MasksAudit:
    """Audit a masker in this process; keyword arguments are the fields of `MaskOptions`.

    Raises TargetError if the target is not a masker, and ValueError if an option is invalid.
    """
    calls = functions(target)
    name = getattr(target, "__qualname__", type(target).__qualname__)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        return audit_calls(
            lambda call, *arguments: calls[call](*arguments), MaskOptions(**options), name, lambda line: None
        )
    finally:  # the audit seeds the generators, which are the caller's
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def audit_masks_of(
    target: str, options: MaskOptions, seconds_per_call: float, report: Callable[[str], None]
) -> MasksAudit:
    """Audit `module:name` or `file.py:name` in a process of its own. Raises TargetError and ValueError. `report` gets a
    line if the audit takes long."""
    check_options(options)
    with TargetProcess(target, "auditing.masks.calls", seconds_per_call) as process:
        return audit_calls(process.call, options, target, report)


def check_options(options: MaskOptions) -> None:
    """Raises ValueError if an option is invalid whatever the target is."""
    if options.recipe:
        recipe_named(options.recipe)
    if options.rate is not None and not 0 < options.rate < 1:
        raise ValueError(f"the rate is {options.rate:g}: state a share between 0 and 1")
    if options.n_tokens is not None and options.n_tokens < 2:
        raise ValueError(f"n_tokens is {options.n_tokens}: state the number of tokens with all special ones")
    special = options.special or ()
    if isinstance(special, str) or not all(isinstance(id, int) for id in special):
        raise ValueError(f"special is {special!r}: state a sequence of ids")
    stated = [*special, *(id for id in (options.mask, options.padding) if id is not None)]
    if options.n_tokens is not None and any(not 0 <= id < options.n_tokens for id in stated):
        raise ValueError(f"the ids {stated} are not all below n_tokens = {options.n_tokens}")
    if options.seed < 0:
        raise ValueError(f"the seed is {options.seed}: state a whole number from 0")
    if options.workers < 0 or options.workers == 1:
        raise ValueError("state at least 2 workers to compare, or 0 to skip the comparison")


def audit_calls(
    call: Callable[..., Any], options: MaskOptions, target: str, report: Callable[[str], None]
) -> MasksAudit:
    """Audit a target through its calls."""
    check_options(options)
    measured = measure(call, options, report)
    findings = list(check_labels(measured))
    bugs = {finding.bug for finding in findings}
    if "nothing-hidden" in bugs or not measured.main.selected.any():
        structure = structure_of(measured.main)
        if "nothing-hidden" not in bugs:
            findings = consequences_marked([*findings, *check_empty(measured, structure)])
        return MasksAudit(measured, [*findings, *check_arguments(measured)], None, None, target)
    structure, found = structure_of(measured.main), found_shares(measured.main)
    nearest = nearest_recipe(structure.rate.value, found.shares, structure.unit, structure.varies)
    claims = measured.facts.claims
    recipe = recipe_named(options.recipe) if options.recipe else None
    rates = (options.rate, recipe.rate if recipe else None, claims.rate)
    rate = next((value for value in rates if value is not None), nearest.rate)
    stated = bool(options.rate or recipe or claims.rate)
    shares = recipe.shares if recipe else claims.shares or nearest.shares
    source = recipe.name if recipe else "the target's own attributes" if claims.shares else nearest.name
    checked = [*check_rate(measured, structure, rate, stated), *check_counts(measured, structure, rate)]
    is_claimed = bool(recipe or claims.shares)
    checked += check_shares(measured.main, found, shares, source, is_claimed, structure.rate.value, rate)
    checked += [*check_mask(measured), *check_random(measured)]
    checked += [*check_columns(measured, structure), *check_neighbors(measured, structure)]
    checked += [*check_ids(measured, structure)]
    checked += check_words(measured, structure, claims.whole_words or (recipe is not None and recipe.unit == "word"))
    checked += check_empty(measured, structure)
    findings = [*checked, *findings, *check_randomness(measured), *check_arguments(measured)]
    return MasksAudit(measured, consequences_marked(findings), structure, nearest, target)


def consequences_marked(findings: list[Finding]) -> list[Finding]:
    """The findings with those that follow from another one as `differs`, without a bug of their own."""
    bugs = [finding.bug for finding in findings if finding.verdict == Verdict.BROKEN]
    marked = []
    for finding in findings:
        root = next((bug for bug in bugs if finding.bug in CONSEQUENCES.get(bug or "", ())), None)
        if root:
            finding = replace(finding, verdict=Verdict.DIFFERS, bug=None, cause=f"Follows from {root}.", recipes=())
        marked.append(finding)
    return marked
