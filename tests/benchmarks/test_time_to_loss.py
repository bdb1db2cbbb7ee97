import json

import pytest

from benchmarks import time_to_loss
from benchmarks.time_to_loss import SEARCHED, recipes, seconds_to, winner
from configs.command_line import PRESETS, read_config, resolve


def test_a_loss_is_reached_on_the_way_from_one_evaluation_to_the_next():
    curve = [(10.0, 3.0), (20.0, 2.0), (30.0, 2.5), (40.0, 1.0)]
    assert seconds_to(2.5, curve) == 15.0  # the first time
    assert seconds_to(1.75, curve) == 35.0
    assert seconds_to(3.5, curve) == 10.0  # at the first evaluation or before
    assert seconds_to(0.5, curve) is None
    assert seconds_to(2.0, [(10.0, 1.9), (20.0, 2.1), (30.0, 1.8)]) == 10.0  # though it rose again


@pytest.mark.parametrize("preset", ["quick", "gpu"])
def test_every_recipe_is_one_that_can_be_trained(preset):
    for keys in SEARCHED[{"quick": "cpu", "gpu": "cuda"}[preset]].values():
        for recipe in recipes(keys, 600.0).values():
            values = resolve(read_config(PRESETS / f"{preset}.yaml"), recipe)
            assert values["training.chars_per_step"] % values["training.stages"][-1]["seq_len"] == 0
            assert values["training.max_seconds"] == 600.0
            assert values["training.max_chars"] is None


def test_the_winner_is_the_one_with_the_lowest_loss(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    monkeypatch.setattr(time_to_loss, "RESULTS", tmp_path)
    monkeypatch.setattr(time_to_loss, "results_folder", lambda: tmp_path / "here")
    assert not time_to_loss.searches()
    monkeypatch.setattr(time_to_loss, "kind", lambda: "cpu")
    names = list(SEARCHED["cpu"])[:3]
    rows = [{"variant": n, "results": {"loss.valid": loss}} for n, loss in zip(names, (2.0, 1.5, 1.7), strict=True)]
    (tmp_path / "m" / "bert_search.json").write_text(json.dumps({"machine": {"machine": "M"}, "trials": rows}))
    words, keys = winner()
    assert names[1] in words
    assert keys == SEARCHED["cpu"][names[1]]
    (tmp_path / "here").mkdir()
    own = {"machine": {"machine": "H"}, "trials": [{"variant": names[2], "results": {"loss.valid": 9.0}}]}
    (tmp_path / "here" / "bert_search.json").write_text(json.dumps(own))
    assert names[2] in winner()[0]  # this machine's own comes first
    monkeypatch.setattr(time_to_loss, "kind", lambda: "cuda")
    assert not time_to_loss.searches()  # these are no use on another kind of device
