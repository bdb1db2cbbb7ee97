import json
from types import SimpleNamespace

import pytest

from benchmarks import tricks
from benchmarks.models import MODELS
from benchmarks.trials import COMMON
from benchmarks.tricks import QUICK, Row, ablation, chosen, main, report, steps_in_the_same_time
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve
from configs.keys import ConfigError

QUICK_KEYS, ANNOTATED_KEYS = (read_config(PRESETS / f"{name}.yaml") for name in (QUICK, "annotated"))


def test_the_ablation_begins_with_the_annotated_recipe_and_ends_with_the_preset():
    """All keys except budget and evaluations."""
    excluded = {"training.max_chars", "training.max_seconds", "training.evaluations", "sample.every_evaluations"}
    changes = list(ablation().values())
    for change, expected in ((changes[0], resolve(ANNOTATED_KEYS, {})), (changes[-1], resolve(QUICK_KEYS, {}))):
        values = resolve(QUICK_KEYS, change.keys)
        assert {key for key in values if values[key] != expected[key]} <= excluded | set(COMMON)


def test_every_model_of_the_ablation_exists():
    models = {change.keys["model.architecture"] for change in ablation().values()}
    assert models == set(MODELS) | {"labml_nn", "modern"}


def test_every_change_is_compared_with_the_one_before():
    names = list(ablation())
    assert [change.base for change in ablation().values()] == ["", *names[:-1]]


def test_every_row_has_valid_keys_and_sets_neither_the_budget_nor_the_evaluations():
    assert not set(tricks.tricks()) & set(ablation())
    for row in (*tricks.tricks().values(), *ablation().values()):
        resolve(QUICK_KEYS, row.keys)
        assert not {*COMMON, *BUDGETS} & set(row.keys)


def test_every_trick_changes_its_base_and_has_a_source_and_a_claim():
    rows = tricks.tricks()
    for name, row in rows.items():
        if name != QUICK:
            assert row.source
            assert row.claim
            assert row.keys != rows[row.base].keys


def test_names_choose_rows_with_their_bases(monkeypatch):
    rows = {QUICK: Row(), "a": Row({}, QUICK), "b": Row({}, "a")}
    monkeypatch.setattr(tricks, "tricks", lambda: rows)
    assert list(chosen([])) == [QUICK, "a", "b"]
    assert chosen(["b"]) == {"a": Row({}, ""), "b": Row({}, "a")}  # the base's own base is not trained
    assert list(chosen(["b", "a"])) == [QUICK, "a", "b"]
    assert list(chosen(["ablation"])) == list(ablation())
    with pytest.raises(ConfigError, match=r"^unknown trick 'ablaton': did you mean ablation\?$"):
        chosen(["a", "ablaton"])


@pytest.mark.parametrize(
    ("time", "steps"), [(1.0, 500), (1.019, 500), (0.981, 500), (1.25, 400), (0.5, 1000), (3, 165)]
)
def test_a_faster_row_has_more_steps_in_the_same_time(time, steps):
    assert steps_in_the_same_time(time, 500) == steps


@pytest.fixture(params=[[], ["slow", "slower"]])
def measured(tmp_path, monkeypatch, capsys, request):
    """Compare two tricks, without training: `slow` takes twice the time per step, and a loss is 1 / steps."""
    trained = []

    def run_trials(path, trials, measure, seconds_per_run):
        trained.extend(trials)
        for trial in trials:
            steps, factor = trial["keys"]["training.max_steps"], 2 if trial["variant"] == "slow" else 1
            trial["results"] = {"loss.valid": 1 / steps, "seconds": steps * factor, "chars": steps, "seq_len": 64}
        return {
            "trials": [trial | {"commit": "1234567", "compiled": trial["variant"] != "slower"} for trial in trials],
            "machine": MACHINE,
        }

    monkeypatch.setattr(tricks, "run_trials", run_trials)
    rows = {QUICK: Row(), "slow": Row({"a": 1}, QUICK, "S 2020", "it helps"), "slower": Row({"a": 2}, "slow")}
    monkeypatch.setattr(tricks, "tricks", lambda: rows)
    main(SimpleNamespace(names=request.param, steps=100, seeds=2), tmp_path / "tricks")
    return trained, json.loads((tmp_path / "tricks.json").read_text()), (tmp_path / "tricks.md").read_text()


RUN = {"seq_len": 256, "chars": 1}
MACHINE = {"machine": "M, 2 cores", "threads": "2", "torch": "2.0", "date": "2026-01-01"}


def test_a_slow_row_is_trained_again_with_fewer_steps_and_compared_with_its_base_at_all_steps(measured):
    trained, results, table = measured
    again = [(trial["variant"], trial["seed"], trial["keys"]["training.max_steps"]) for trial in trained[6:]]
    assert again == [("slow", 0, 50), ("slower", 0, 200), ("slow", 1, 50), ("slower", 1, 200)]
    losses = {trial["variant"]: trial["results"]["loss.same_time"] for trial in results["trials"]}
    assert losses == {QUICK: 1 / 100, "slow": 1 / 50, "slower": 1 / 200}
    assert results["steps"] == {QUICK: 100, "slow": 50, "slower": 200}
    # The base of `slower` is `slow` after 100 steps, not after its 50 in the time of quick.
    assert "| slower | 0.010 ± 0.000 (+0.000 ± 0.000, unknown) | 0.005 ± 0.000 (-0.005 ± 0.000, unknown) |" in table
    assert "| 2.00 (2.00 to 2.00) | quick | S 2020 | it helps |" in table
    assert "| 0.50 (0.50 to 0.50) eager | slow |" in table


@pytest.mark.parametrize(
    ("gains", "verdict"), [((0.3, 0.3, 0.4), "helps"), ((-0.3, -0.3, -0.4), "hurts"), ((0.1, -0.1, 0), "tie")]
)
def test_the_table_says_whether_a_trick_helps(gains, verdict):
    losses = {QUICK: [1.0] * 3, "a": [1 - gain for gain in gains]}
    trials = [
        {"variant": name, "seed": seed, "commit": "c", "results": {"loss.valid": loss, "loss.same_time": loss, **RUN}}
        for name, row in losses.items()
        for seed, loss in enumerate(row)
    ]
    rows = {QUICK: Row(), "a": Row({}, QUICK)}
    table = report(rows, {name: [1.0] for name in rows}, set(), 500).markdown(trials, MACHINE)
    (line,) = (line for line in table.splitlines() if line.startswith("| a |"))
    assert line.count(f", {verdict})") == 2
