"""Checks that masks are random: new every time, in every window and every worker, and the same for the same seed."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from auditing.finding import Finding, Verdict
from auditing.masks.measure import Measured, repeats_by_call, repeats_in_batch, same_selection
from auditing.masks.target import Masked

MOST = 0.5  # a larger share of equal masks is not due to chance
FEWEST = 0.02  # a smaller share of equal neighbors in a batch is not reported


def check_randomness(measured: Measured) -> Iterator[Finding]:
    """Dynamic or static, equal masks in a batch, workers, and seeds."""
    same = same_selection(*measured.repeats)
    is_static = bool(len(same)) and same.mean() > MOST
    by_call = repeats_by_call(measured.first)
    evidence = f"{int(same.sum()):,} of {len(same):,} windows"
    if is_static or by_call:
        found = "all calls alike" if by_call else "same masks"
        cause = "Every epoch hides the same positions: the generator is seeded in every call, or masks are stored."
        must_be_new = (measured.options.recipe or "").lower() == "roberta"
        verdict = Verdict.BROKEN if must_be_new else Verdict.DIFFERS
        yield Finding("masks of a second call", found, "new masks", evidence, verdict, "static-masks", cause,
                      ("BERT's prepared data",))  # fmt: skip
    else:
        yield Finding("masks of a second call", "new masks", "new masks", evidence)
    yield check_batch(measured)
    if measured.workers is None or measured.workers_again is None:
        reason = "not asked for" if not measured.options.workers else "no fork on this system"
        yield Finding("workers and seeds", "not checked", "new masks per worker", reason)
        return
    yield check_workers(measured, measured.workers, is_static or by_call)
    yield check_seed(measured.workers, measured.workers_again)


def check_batch(measured: Measured) -> Finding:
    """Whether windows of one call have equal masks."""
    same, first = repeats_in_batch(measured.first), measured.first
    evidence = f"{int(same.sum()):,} of {len(same):,} pairs"
    # Masks of few different forms repeat by chance, and then in other calls as often.
    of_calls = same_selection(first.part(slice(0, -1)), first.part(slice(1, None)))
    chance = of_calls.mean() if len(of_calls) else 0.0
    if len(same) and same.mean() > max(FEWEST, 4 * chance):
        cause = "Windows of one batch share their mask: one draw is broadcast, or the seed does not advance."
        found = f"{same.mean():.0%} the same"
        return Finding("masks in a batch", found, "all new", evidence, Verdict.BROKEN, "same-mask-in-batch", cause)
    return Finding("masks in a batch", "all new", "all new", evidence)


def equal(one: Masked, other: Masked) -> bool:
    return np.array_equal(one.inputs, other.inputs) and np.array_equal(one.labels, other.labels)


def check_workers(measured: Measured, workers: list[list[Masked]], is_static: bool) -> Finding:
    """Whether DataLoader workers select different positions of the same windows."""
    originals, ignored = measured.originals, measured.reading.ignored
    first = [
        calls[0].inputs != originals if measured.reading.by_changes else calls[0].labels != ignored for calls in workers
    ]
    same = np.concatenate([(one == other).all(1)[(one | other).any(1)] for one, other in pairwise(first)])
    name, evidence = "masks of two workers", f"{int(same.sum())} of {len(same)} windows"
    is_same = bool(len(same)) and same.mean() > MOST
    if is_same and not is_static:
        cause = (
            "Every worker gets a copy of the masker's own generator. "
            "Seed it per worker, or use PyTorch's global generator. Right only if no workers call it (--workers 0)."
        )
        return Finding(name, "same", "different", evidence, Verdict.BROKEN, "same-masks-per-worker", cause)
    return Finding(name, "same, as in every call" if is_same else "different", "different", evidence)


def check_seed(workers: list[list[Masked]], again: list[list[Masked]]) -> Finding:
    """Whether the same seed gives the same masks."""
    pairs = [(a, b) for one, other in zip(workers, again, strict=True) for a, b in zip(one, other, strict=True)]
    count = sum(equal(one, other) for one, other in pairs)
    evidence = f"{count} of {len(pairs)} calls"
    if count < len(pairs):
        cause = "A generator is seeded by the clock or the system, so no run can be repeated."
        return Finding("masks of the same seed", "different", "same", evidence, Verdict.DIFFERS,
                       "not-reproducible", cause)  # fmt: skip
    return Finding("masks of the same seed", "same", "same", evidence)
