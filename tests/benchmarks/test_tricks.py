import json
from types import SimpleNamespace

import pytest

from benchmarks import tricks
from benchmarks.command import recipe
from benchmarks.trials import COMMON
from benchmarks.tricks import BASE, main, steps_in_the_same_time
from configs.checks import BUDGETS
from configs.command_line.command import PRESETS, read_config, resolve
from configs.keys import ConfigError


def test_every_trick_changes_quick_and_has_a_source_and_a_claim():
    """It sets neither the budget nor the evaluations."""
    quick = read_config(PRESETS / f"{BASE}.yaml")

    for name, row in recipe("tricks").items():
        assert row["source"], name
        assert row["claim"], name
        assert resolve(quick, row["keys"]) != resolve(quick, {}), name
        assert not {*COMMON, *BUDGETS} & set(row["keys"]), name


@pytest.mark.parametrize(
    ("time", "steps"),
    [(1.0, 500), (1.019, 500), (0.981, 500), (1.25, 400), (0.5, 1000), (3, 165)],
)
def test_a_faster_row_has_more_steps_in_the_same_time(time, steps):
    assert steps_in_the_same_time(time, 500) == steps


def test_a_slow_row_is_trained_again_with_fewer_steps(tmp_path, monkeypatch):
    """Without training: `bigrams` takes twice the time per step, and a loss is 1 / steps."""
    trained = []

    def run_trials(path, variants, seeds, measure, seconds_per_run):
        rows = []
        for name, keys in variants.items():
            steps = keys["training.max_steps"]
            trained.append((name, steps))
            results = {
                "loss.valid": 1 / steps,
                "seconds": steps,
                "chars": steps,
                "seq_len": 64,
            }
            if name == "bigrams":
                results["seconds"] *= 2

            row = {"variant": name, "commit": "1234567"}
            rows += [
                row | {"seed": seed, "results": dict(results)} for seed in range(seeds)
            ]

        return rows

    monkeypatch.setattr(tricks, "run_trials", run_trials)
    options = SimpleNamespace(names=["bigrams", "mask_only"], steps=100, seeds=2)
    main(options, tmp_path / "tricks")

    assert trained == [
        (BASE, 100),
        ("bigrams", 100),
        ("mask_only", 100),
        ("bigrams", 50),
    ]

    content = json.loads((tmp_path / "tricks.json").read_text())
    losses = {
        trial["variant"]: trial["results"]["loss.same_time"]
        for trial in content["trials"]
    }

    assert losses == {BASE: 1 / 100, "bigrams": 1 / 50, "mask_only": 1 / 100}

    row = content["table"][1]
    assert row["at equal steps"] == "0.010 ± 0.000 (+0.000 ± 0.000, unknown)"
    assert row["at equal seconds"] == "0.020 ± 0.000 (+0.010 ± 0.000, unknown)"
    assert row["step time"] == "2.00 (2.00 to 2.00)"
    assert row["source: claim"].startswith(
        "modded-nanogpt (Jordan et al. 2024): tables of bigrams"
    )


def test_an_unknown_trick_is_refused_with_its_nearest_names(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^unknown trick 'bigram': choose from bigrams"
    ):
        main(SimpleNamespace(names=["bigram"], steps=1, seeds=1), tmp_path)
