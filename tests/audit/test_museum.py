"""Every bug of the museum is found under its name, and correct maskers raise no alarm."""

import re
from pathlib import Path

import pytest

from auditing.masks.audit import audit_masks
from tests.audit.museum import EXHIBITS, Exhibit
from tests.audit.museum.correct import CORRECT, Correct

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"
THREAD = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{8}:[\w./-]+)")


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_bug_is_found_under_its_name(exhibit: Exhibit) -> None:
    findings = audit_masks(exhibit.target, **exhibit.options).findings
    assert (exhibit.bug, exhibit.verdict) in {(finding.bug, finding.verdict) for finding in findings}


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.name)
def test_correct_masker_raises_no_alarm(correct: Correct) -> None:
    assert [finding.line() for finding in correct.alarms(seed=0)] == []


def test_every_exhibit_cites_a_thread_or_a_commit_and_is_documented() -> None:
    documented = DOCS.read_text(encoding="utf-8")
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS) >= 20
    for exhibit in EXHIBITS:
        assert THREAD.fullmatch(exhibit.thread), exhibit.thread
        assert f"`{exhibit.bug}`" in documented
        assert re.split("[#@]", exhibit.thread)[0] in documented
