"""Every bug of the museum is found under its name, correct maskers raise no alarm, and the docs
list the catalogue."""

import re
from pathlib import Path

import pytest

from auditing.findings import CATALOGUE
from auditing.masks.audit import audit_masks
from auditing.tests.catalogue import table
from auditing.tests.conftest import mostly_slow
from auditing.tests.museum.collators import COLLATOR_BUGS
from auditing.tests.museum.correct import CORRECT, Correct
from auditing.tests.museum.exhibit import BUGS, Exhibit

EXHIBITS = [*BUGS, *COLLATOR_BUGS]
# One example of each kind of bug: labels, arguments, repeated masks, workers, shares, random tokens,
# counts, special tokens, positions, attention, words.
FAST_BUGS = {
    "originals_by_reference",
    "masked_in_place",
    "one_mask_for_all",
    "generator_copied_to_workers",
    "tenth_of_the_rest",
    "lowest_id_of_another_vocabulary",
    "count_rounded_down",
    "special_selected",
    "labels_cut_to_a_fixed_length",
    "masks_hidden_from_attention",
    "first_piece_of_a_word",
}
FAST_CORRECT = {"spans", "masked diffusion", "collator, packed"}
pytestmark = pytest.mark.usefixtures("few_windows")
README = Path(__file__).parents[1] / "README.md"
THREAD = re.compile(r"[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{8}:[\w./-]+)")


@pytest.mark.parametrize(
    "exhibit", mostly_slow({each.name: each for each in EXHIBITS}, FAST_BUGS)
)
def test_bug_is_found_under_its_name(exhibit: Exhibit) -> None:
    workers = 2 if exhibit.bug == "same-masks-per-worker" else 0
    findings = audit_masks(exhibit.target, workers=workers, **exhibit.options).findings
    verdict = exhibit.verdict or CATALOGUE[exhibit.bug].verdict
    assert (exhibit.bug, verdict) in {
        (finding.bug, finding.verdict) for finding in findings
    }


@pytest.mark.parametrize(
    "correct", mostly_slow({each.name: each for each in CORRECT}, FAST_CORRECT)
)
def test_correct_masker_raises_no_alarm(correct: Correct) -> None:
    report = correct.audit(seed=0, workers=0)
    assert [finding.line() for finding in correct.alarms(report)] == []
    assert not correct.recipe or report.summary.startswith(
        f"Nearest recipe: {correct.recipe} ("
    )


def test_every_exhibit_cites_a_thread_or_a_commit() -> None:
    assert len({exhibit.name for exhibit in EXHIBITS}) == len(EXHIBITS) >= 36
    for exhibit in EXHIBITS:
        assert all(
            THREAD.fullmatch(cited) for cited in CATALOGUE[exhibit.bug].cited.split()
        ), exhibit.bug
        assert CATALOGUE[exhibit.bug].cited


def test_the_docs_have_the_table_of_the_catalogue() -> None:
    """`python -m auditing.tests.catalogue` prints it."""
    assert table() in README.read_text(encoding="utf-8")
