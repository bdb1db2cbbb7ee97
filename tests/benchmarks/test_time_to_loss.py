import json

import pytest

from benchmarks import time_to_loss
from benchmarks.time_to_loss import SEARCHED, earlier_search, recipes, report, seconds_to
from configs.command_line import PRESETS, read_config, resolve


def test_a_loss_between_two_evaluations_is_interpolated():
    curve = [(10.0, 3.0), (20.0, 2.0), (30.0, 2.5), (40.0, 1.0)]
    assert seconds_to(2.5, curve) == 15.0  # the first time
    assert seconds_to(1.75, curve) == 35.0
    assert seconds_to(3.5, curve) == 10.0  # at the first evaluation or before
    assert seconds_to(0.5, curve) is None
    assert seconds_to(2.0, [(10.0, 1.9), (20.0, 2.1), (30.0, 1.8)]) == 10.0  # although it rose again


@pytest.mark.parametrize("preset", ["quick", "gpu"])
def test_every_recipe_is_valid(preset):
    base = read_config(PRESETS / f"{preset}.yaml")
    for keys in SEARCHED[preset].values():
        for recipe in recipes(preset, keys, 600.0).values():
            values = resolve(base, recipe)
            assert values["training.chars_per_step"] % values["training.stages"][-1]["seq_len"] == 0
            assert values["training.max_seconds"] == 600.0
            assert values["training.max_chars"] is None


def test_the_search_of_this_machine_comes_first_and_that_of_another_kind_of_device_does_not_count(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(time_to_loss, "RESULTS", tmp_path)
    monkeypatch.setattr(time_to_loss, "results_path", lambda name: tmp_path / "here" / name)
    assert earlier_search("quick") is None
    rows = [{"variant": next(iter(SEARCHED["quick"]))}]
    for machine in ("another", "here"):
        (tmp_path / machine).mkdir()
        (tmp_path / machine / "bert_search.json").write_text(json.dumps({"machine": machine, "trials": rows}))
        assert earlier_search("quick")["machine"] == machine
    assert earlier_search("gpu") is None


def test_the_table_gives_the_median_time_and_marks_the_first_evaluation():
    def row(variant, seed, loss, seconds):
        results = {
            "loss.valid": loss,
            "chars": 1e6,
            "seq_len": 256,
            "counting": 1.179,
            "curve": [(50.0, 2.5), (600.0, loss)],
        }
        results["seconds_to"] = dict.fromkeys(time_to_loss.LOSSES) | seconds
        return {"variant": variant, "seed": seed, "commit": "c", "compiled": True, "results": results}

    rows = [row("Folio", 0, 1.0, {"3.0": 50.0, "2.0": 100.0}), row("Folio", 1, 1.1, {"3.0": 50.0, "2.0": 120.0})]
    rows.append(row("annotated", 0, 3.4, {}))
    columns = report(rows, "quick", 600.0, "8 x 128").columns
    assert columns["to 3.0"] == {"Folio": "≤ 50 s", "annotated": "never"}
    assert columns["to 2.0"]["Folio"] == "110 s"
