import json

import pytest

from benchmarks import time_to_loss
from benchmarks.time_to_loss import (
    PEERS,
    SHARES,
    earlier_search,
    recipes,
    report,
    search_trials,
    searched_recipes,
    seconds_to,
    winners,
)
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
    for variant, keys in searched_recipes(preset).items():
        for name, recipe in recipes(dict.fromkeys(PEERS["peers"], keys), 600.0).items():
            values = resolve(base, recipe)
            for row in values["training.stages"]:
                assert values["training.chars_per_step"] % row["seq_len"] == 0, variant
            assert values["training.max_seconds"] == SHARES[name] * 600.0
            assert values["training.max_chars"] is None


def test_folio_trains_as_long_as_its_preset_says():
    own = read_config(PRESETS / "quick.yaml")["training.max_seconds"]
    assert recipes(PEERS["peers"], 600.0)["Folio"]["training.max_seconds"] == own


def test_the_lowest_loss_of_each_peer_wins():
    losses = dict.fromkeys(searched_recipes("quick"), 3.0)
    bert, modern = (
        next(variant for variant in reversed(losses) if variant.startswith(f"{peer}: ")) for peer in PEERS["peers"]
    )
    losses |= {bert: 2.9, modern: 1.7}
    rows = [{"variant": variant, "results": {"loss.valid": loss}} for variant, loss in losses.items()]
    assert winners(rows) == dict(zip(PEERS["peers"], (bert, modern), strict=True))


def test_the_search_of_this_machine_comes_first_and_one_of_other_variants_does_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(time_to_loss, "RESULTS", tmp_path)
    monkeypatch.setattr(time_to_loss, "results_path", lambda name: tmp_path / "here" / name)
    assert earlier_search("quick") is None
    rows = search_trials("quick")
    changed = [row | {"keys": row["keys"] | {"training.decay": 0.5}} for row in rows]
    for machine, trials in (("a", changed), ("another", rows), ("here", rows)):
        (tmp_path / machine).mkdir()
        content = {"machine": machine, "trials": trials}
        (tmp_path / machine / "peer_search.json").write_text(json.dumps(content))
        found = earlier_search("quick")
        assert (found and found["machine"]) == (None if machine == "a" else machine)
    assert earlier_search("gpu") is None


def test_the_table_gives_the_median_time_and_marks_the_first_evaluation():
    def row(variant, seed, *losses):
        curve = [(50.0 * (i + 1), loss) for i, loss in enumerate(losses)]
        last = {"loss.valid": losses[-1], "chars": 1e6, "seq_len": 256, "seconds": curve[-1][0]}
        results = last | {"counting": 1.179, "curve": curve}
        return {"variant": variant, "seed": seed, "commit": "c", "compiled": True, "results": results}

    rows = [row("Folio", 0, 2.5, 1.5, 1.0), row("Folio", 1, 2.5, 2.3, 1.3)]
    rows += [row("annotated", 0, 3.5, 3.4), row("Hugging Face BERT", 0, 3.2, 1.5, 1.6)]
    columns = report(rows, "quick", "1024, 0.001").columns
    assert columns["to 3.0"] == {"Folio": "≤ 50 s", "annotated": "never", "Hugging Face BERT": "56 s"}
    assert columns["to 2.0"]["Folio"] == "95 s"  # 75 and 115
    assert columns["to a peer's best"]["Folio"] == "120 s"  # 1.5 after 100 and 140
    assert columns["to 1.4"]["Hugging Face BERT"] == "never"
