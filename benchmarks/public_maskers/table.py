"""One row per public masker: what it selects, what it puts there, and what the audit finds."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from labml_nn.transformers.mlm import MLM as AnnotatedMLM

from auditing.errors import TargetError
from auditing.findings import Verdict
from auditing.masks.audit import MasksReport, audit_masks
from benchmarks.public_maskers import pretraining, recommenders
from benchmarks.public_maskers.collators import COLLATORS
from benchmarks.public_maskers.packages import PACKAGES
from benchmarks.public_maskers.papers import PAPERS
from benchmarks.public_maskers.vocabulary import CLS, IGNORED, MASK, N_TOKENS, PAD, SEP, UNK, Masker
from configs.keys import ConfigError
from data.masking import MLM

REGISTERED = (pretraining, recommenders)  # importing them has filled PACKAGES
HEADER = ("masker", "version", "selected", "[MASK] / random / unchanged", "broken", "differs")


def annotated() -> AnnotatedMLM:
    """The annotated implementation, as its experiment makes it."""
    return AnnotatedMLM(padding_token=PAD, mask_token=MASK, no_mask_tokens=[CLS, SEP, UNK], n_tokens=N_TOKENS)


def ours() -> Masker:
    """Folio's own, of the same interface."""
    return Masker(
        MLM(padding_token=PAD, mask_token=MASK, no_mask_tokens=[CLS, SEP, UNK], n_tokens=N_TOKENS), ignored=PAD
    )


def maskers() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Name, version and factory of every masker; those whose package is not installed are left out."""
    yield "Folio, `data.masking.MLM`", "", ours
    yield "labml_nn, `MLM`", version("labml-nn"), annotated
    for name, collator in COLLATORS.items():
        yield f"transformers, DataCollatorForLanguageModeling, {name}", version("transformers"), collator
    for name, (distribution, factory) in PACKAGES.items():
        try:
            yield name, version(distribution), factory
        except PackageNotFoundError:
            continue
    for name, masker in PAPERS.items():
        yield name, "", partial(replace, masker)


def row(name: str, release: str, audit: MasksReport) -> tuple[str, ...]:
    bugs = {
        verdict: sorted({f"`{each.bug}`" for each in audit.findings if each.verdict == verdict and each.bug})
        for verdict in (Verdict.BROKEN, Verdict.DIFFERS)
    }
    if audit.structure is None:
        return name, release, "", "", *map(", ".join, bugs.values())
    count = "fixed" if audit.structure.is_fixed else "varies"
    rate = f"{audit.structure.rate.value:.1%}, {count}"
    shares = " / ".join(f"{100 * share:.1f}" for share in audit.structure.shares)
    return name, release, rate, shares, *map(", ".join, bugs.values())


def print_table(part: str) -> None:
    """Audit all maskers with `part` in their name and print the table, row by row. Raises ConfigError without any."""
    chosen = [masker for masker in maskers() if part in masker[0]]
    if not chosen:
        raise ConfigError(f"no installed masker has {part!r} in its name")
    print(f"| {' | '.join(HEADER)} |")
    print("|---" * len(HEADER) + "|")
    for name, release, factory in chosen:
        target = factory()
        ignored = getattr(target, "ignored", IGNORED)
        options = {} if ignored == IGNORED else {"ignored": ignored}
        try:
            print(f"| {' | '.join(row(name, release, audit_masks(target, **options)))} |", flush=True)
        except TargetError as error:
            print(f"| {name} | {release} | {error} | | | |", flush=True)
