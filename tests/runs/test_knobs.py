import subprocess
import sys

import pytest

from runs.knobs import KnobError, Knobs, knobs_of
from tests.conftest import ROOT

RATES = [0.15, 0.3]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Knobs()),
        ({"learning_rate_factor": "0.5"}, Knobs(0.5)),
        ({"learning_rate_factor": 2, "masking_prob": 0.3}, Knobs(2.0, 0.3)),
        ({"masking_prob": "none"}, Knobs()),
    ],
)
def test_knobs_are_read_from_texts_and_numbers(values, expected):
    assert knobs_of(values, RATES) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate_factor": 11}, "at most 10"),
        ({"learning_rate_factor": 0}, "at least 0.01"),
        ({"learning_rate_factor": "fast"}, "is not a number"),
        ({"learning_rate_factor": float("nan")}, "is not a number"),
        ({"learning_rate_factor": True}, "is not a number"),
        ({"masking_prob": 0.2}, "choose 0.15, 0.3, or none"),
        ({"dropout": 0.1}, "there is no knob 'dropout'"),
    ],
)
def test_what_is_out_of_range_is_refused_with_what_is_in_it(values, message):
    with pytest.raises(KnobError, match=message):
        knobs_of(values, RATES)


def test_a_change_by_hand_takes_hold_and_is_written_down(train, corpus_file):
    trained = train(data__corpus=str(corpus_file), training__max_steps=20, training__evaluations=4)
    untouched = trained.heard.rows
    assert not any("changed_by_hand" in row for row in untouched)
    assert trained.run.events() == []

    def turn(heard, wanted):
        heard.wanted = wanted

    changed = train(
        data__corpus=str(corpus_file),
        training__max_steps=20,
        training__evaluations=4,
        on_row=lambda heard: (
            turn(heard, {"learning_rate_factor": 0.5, "masking_prob": 0.3}) if len(heard.rows) == 2 else None
        ),
    )
    rows = changed.heard.rows
    assert [row.get("changed_by_hand", False) for row in rows] == [False, False, True, True]
    assert [row["masking_prob"] for row in rows] == [0.3, 0.3, 0.3, 0.3]  # the last two by hand
    assert [row["masking_prob"] for row in untouched] == [0.3, 0.3, 0.15, 0.15]
    assert rows[2]["learning_rate"] == pytest.approx(0.5 * untouched[2]["learning_rate"])
    assert rows[2]["loss.valid"] != untouched[2]["loss.valid"]
    (event,) = changed.run.events()
    assert event["event"] == "changed by hand"
    assert event["step"] == rows[1]["step"]
    assert event["before"] == {"learning_rate_factor": 1.0, "masking_prob": None}
    assert event["after"] == {"learning_rate_factor": 0.5, "masking_prob": 0.3}
    assert any("changed by hand at step 10" in line for line in changed.heard.lines)


def test_a_wrong_wish_changes_nothing_and_is_said_once(train, corpus_file):
    trained = train(
        data__corpus=str(corpus_file),
        training__max_steps=4,
        on_row=lambda heard: setattr(heard, "wanted", {"learning_rate_factor": 1e9}),
    )
    assert trained.run.events() == []
    assert len([line for line in trained.heard.lines if line.startswith("not changed:")]) == 1


def test_without_a_run_or_with_a_wrong_knob_the_command_says_so(tmp_path):
    command = [sys.executable, "dashboard.py", "--logs", str(tmp_path), "--set", "last", "learning_rate_factor=2"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
