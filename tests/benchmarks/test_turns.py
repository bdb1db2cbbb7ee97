from benchmarks.turns import take_turns


def test_every_candidate_has_one_turn_per_round_and_comes_first_in_turn():
    order = []
    candidates = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    results = take_turns(candidates, rounds=3, warmup=1)
    assert "".join(order) == "abcbcacababc"
    assert results == {"a": [6, 8, 10], "b": [4, 9, 11], "c": [5, 7, 12]}  # without the first round
