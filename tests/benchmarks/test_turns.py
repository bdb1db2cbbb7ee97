import json

from benchmarks.turns import compare, take_turns


def test_every_candidate_has_one_turn_per_round_and_comes_first_in_turn():
    order = []
    candidates = {
        name: lambda name=name: order.append(name) or len(order) for name in "abc"
    }
    results = take_turns(candidates, rounds=3, warmup=1)

    assert "".join(order) == "abcbcacababc"
    # without the first round
    assert results == {"a": [6, 8, 10], "b": [4, 9, 11], "c": [5, 7, 12]}


def test_a_ratio_is_between_turns_of_the_same_round(tmp_path):
    """The machine becomes ten times slower in the second of three rounds; medians of the speeds do
    not tell."""
    slow = iter([100.0, 10.0, 1000.0])
    fast = iter([200.0, 15.0, 4000.0])
    pair = {
        "slow": lambda: {"speed": next(slow), "MB": 2.5},
        "fast": lambda: {"speed": next(fast), "MB": 1234.5},
    }
    compare(tmp_path / "x", {"small": pair}, rounds=3, base="slow", text="play")

    content = json.loads((tmp_path / "x.json").read_text())

    assert content["table"] == [
        {
            "": "small: slow",
            "speed": "100",
            "MB": "2.5",
            "ratio to slow (quartiles)": "1",
        },
        {
            "": "small: fast",
            "speed": "200",
            "MB": "1,234",
            "ratio to slow (quartiles)": "2.00 (1.75 to 3.00)",
        },
    ]
    assert content["turns"]["small"]["fast"][1] == {"speed": 15.0, "MB": 1234.5}
    assert content["text"] == "play"
