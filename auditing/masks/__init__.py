"""Audits of masking functions, data collators and loaders of batches."""

from typing import Any

from auditing.errors import TargetError
from auditing.findings import Verdict
from auditing.masks.audit import audit_masks


def assert_masks(target: Any, **options: Any) -> None:
    """Raise AssertionError if anything about a masker is broken: one line per broken finding.

    `target` is the masking function, the data collator, or a function without arguments that makes
    one. Options are the fields of `auditing.masks.tokens.MaskOptions`: kind, n_tokens, mask,
    padding, special, ignored, rate, recipe, workers, seed.

    Raises TargetError if the target cannot be called, ValueError if an option is invalid.
    """
    __tracebackhide__ = True  # pytest shows the line of the test

    try:
        findings = audit_masks(target, **options).findings
    except (TargetError, ValueError) as error:
        raise error.with_traceback(None) from None

    broken = [
        finding.line() for finding in findings if finding.verdict == Verdict.BROKEN
    ]
    if broken:
        raise AssertionError("\n".join(broken))
