from dataclasses import asdict
from itertools import product

import pytest

from runs.errors import InputError
from runs.knobs import Knobs, knobs_of

CHANGE = {"learning_rate_factor": 0.5, "masking_prob": 0.3}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Knobs()),
        ({"learning_rate_factor": "0.5"}, Knobs(0.5)),
        ({"learning_rate_factor": 2, "masking_prob": 0.3}, Knobs(2.0, 0.3)),
        ({"masking_prob": "none"}, Knobs()),
    ],
)
def test_knobs_are_read_from_strings_and_numbers(values, expected):
    assert knobs_of(values) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("masking_prob", 0.01),
        ("dropout", 0.1),
        *product(
            ["learning_rate_factor"],
            [11, 0, "fast", "١", "1_0", float("nan"), True, ""],
        ),
    ],
)
def test_an_unknown_knob_and_a_value_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        knobs_of({name: value})


def test_a_change_by_hand_takes_effect_and_is_recorded(train):
    def turn(callbacks):
        callbacks.wanted = CHANGE if len(callbacks.rows) >= 2 else None

    keys = {"training__max_steps": 20, "training__evaluations": 4}
    untouched = train(**keys)
    changed = train(on_row=turn, **keys)
    before = untouched.callbacks.rows
    rows = changed.callbacks.rows

    assert not any("changed_by_hand" in row for row in (*before, *rows[:2]))
    assert all(row["changed_by_hand"] for row in rows[2:])
    # the last two by hand
    assert [row["masking_prob"] for row in rows] == [0.3, 0.3, 0.3, 0.3]
    assert [row["masking_prob"] for row in before] == [0.3, 0.3, 0.15, 0.15]
    assert rows[2]["learning_rate"] == pytest.approx(0.5 * before[2]["learning_rate"])
    assert rows[2]["loss.valid"] != before[2]["loss.valid"]

    # the request came with the second row, and holds from the next step on
    (event,) = changed.run.events()

    assert event["event"] == "changed by hand"
    assert event["step"] == rows[1]["step"]
    assert (event["before"], event["after"]) == (asdict(Knobs()), CHANGE)
    assert any("changed by hand at step 10" in line for line in changed.callbacks.lines)
    assert untouched.run.events() == []
