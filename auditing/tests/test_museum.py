"""Every bug of the museum is found under its name, correct maskers raise no alarm, and the docs
list the catalogue."""

import re
from pathlib import Path

import pytest

from auditing.findings import CATALOGUE
from auditing.masks.audit import audit_masks
from auditing.tests.catalogue import table
from auditing.tests.museum.collators import COLLATOR_BUGS
from auditing.tests.museum.correct import CORRECT, Correct
from auditing.tests.museum.exhibit import BUGS, Exhibit

EXHIBITS = [*BUGS, *COLLATOR_BUGS]
pytestmark = pytest.mark.usefixtures("few_windows")
README = Path(__file__).parents[1] / "README.md"
THREAD = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{8}:[\w./-]+)")


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_bug_is_found_under_its_name(exhibit: Exhibit) -> None:
    workers = 2 if exhibit.bug == "same-masks-per-worker" else 0
    findings = audit_masks(exhibit.target, workers=workers, **exhibit.options).findings
    verdict = exhibit.verdict or CATALOGUE[exhibit.bug].verdict
    assert (exhibit.bug, verdict) in {(finding.bug, finding.verdict) for finding in findings}


@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.name)
def test_correct_masker_raises_no_alarm(correct: Correct) -> None:
    report = correct.audit(seed=0, workers=0)
    assert [finding.line() for finding in correct.alarms(report)] == []
    assert not correct.recipe or report.summary.startswith(f"Nearest recipe: {correct.recipe} (")


def test_every_exhibit_cites_a_thread_or_a_commit() -> None:
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS) >= 36
    for exhibit in EXHIBITS:
        assert all(THREAD.fullmatch(cited) for cited in CATALOGUE[exhibit.bug].cited.split()), (
            exhibit.bug
        )
        assert CATALOGUE[exhibit.bug].cited


def test_the_docs_have_the_table_of_the_catalogue() -> None:
    """`python -m auditing.tests.catalogue` prints it."""
    assert table() in README.read_text(encoding="utf-8")
