"""The program as a user runs it."""

import json
import re

import pytest
import torch
from labml.configs import option

from configs.command_line import resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from configs.model import ModelConfigs
from data.corpus import CorpusError
from tests.conftest import TINY

TIMES = {"seconds", "wall_seconds", "chars_per_second"}


def without_times(rows):
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def test_a_run_from_end_to_end_in_a_pipe(command, only_run, corpus_file):
    done = command(f"data.corpus={corpus_file}", "training.max_steps=8", "sample.every_evaluations=1")
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert sum(line.startswith("step ") for line in lines) == 2  # one line an evaluation
    assert any(re.search(r"\[.(!.)?\]", line) for line in lines)  # a sample
    run = only_run()
    assert str(run.path) in done.stdout
    assert run.config()["data.corpus"] == str(corpus_file)
    assert [row["corpus"] for row in run.metrics()] == [str(corpus_file)] * 2
    assert (run.path / "run.yaml").exists()  # labml's own


def test_the_same_seed_gives_the_same_metrics_and_config_yaml_repeats_the_run(command, corpus_file, tmp_path, train):
    keys = [f"data.corpus={corpus_file}", "training.max_steps=8", "seed=7", "model.dropout=0.1"]
    assert command(*keys, "name=first").returncode == 0
    (first,) = (tmp_path / "logs" / "first").iterdir()
    again = command("--config", str(first / "config.yaml"), "name=again", tiny=False)
    assert again.returncode == 0, again.stderr
    rows = {}
    for name in ("first", "again"):
        (path,) = (tmp_path / "logs" / name).iterdir()
        rows[name] = without_times(map(json.loads, (path / "metrics.jsonl").read_text().splitlines()))
    assert rows["first"] == rows["again"]
    for seed in (7, 8):
        here = train(data__corpus=str(corpus_file), training__max_steps=8, seed=seed, model__dropout=0.1).run.metrics()
        assert (without_times(here) == rows["first"]) == (seed == 7)


def test_the_annotated_recipe_trains_on_todays_labml(command, only_run, corpus_file):
    done = command(
        "--preset", "annotated", f"data.corpus={corpus_file}", "training.max_steps=3", "training.evaluations=1",
        tiny=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = only_run().metrics()
    assert (row["seq_len"], row["chars"]) == (32, 3 * 64 * 32)
    assert row["learning_rate"] == 128**-0.5 * 3 * 2_000**-1.5  # Noam's third step
    config = only_run().config()
    assert (config["model.architecture"], config["masking.strategy"]) == ("labml_nn", "labml_nn")


def test_a_corpus_that_cannot_be_used_ends_with_2_and_one_line(command, tmp_path):
    """Here one of the reasons; the others are in tests/data/test_corpus.py."""
    path = tmp_path / "latin.txt"
    path.write_bytes(b"caf\xe9" * 1_000)
    done = command(f"data.corpus={path}")
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "logs").exists()


def test_a_corpus_that_is_too_short_is_told_so(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("too short " * 50)
    with pytest.raises(CorpusError, match="must hold a validation window"):
        _ = configs_of(resolve(TINY, {"data.corpus": str(path)})).trainer


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("masking.masking_probb=0.2", "did you mean masking.masking_prob?"),  # seen at once
        ("masking.no_mask_tokens=Ω", "'Ω' is not in the corpus"),  # seen when the corpus is there
    ],
)
def test_wrong_keys_end_with_2_and_one_line(command, corpus_file, tmp_path, argument, message):
    done = command(f"data.corpus={corpus_file}", argument)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sample.prompts": ["the Ω"]}, r"sample\.prompts: the character 'Ω' is not in the vocabulary"),
        (
            {"training.chars_per_step": 65_536, "training.stages": [{"until": 1.0, "seq_len": 65_536}]},
            "too few for windows",
        ),
    ],
)
def test_keys_that_do_not_fit_the_corpus_are_wrong_before_anything_trains(corpus_file, keys, message):
    configs = configs_of(resolve(TINY, {"data.corpus": str(corpus_file), **keys}))
    with pytest.raises((ConfigError, CorpusError), match=message):
        _ = configs.trainer


def test_no_text_and_no_network_is_a_clear_error(command, monkeypatch, tmp_path):
    done = command("data.corpus=tiny_shakespeare", FOLIO_TINY_SHAKESPEARE=str(tmp_path / "nowhere.txt"))
    assert done.returncode == 2
    assert "FOLIO_TINY_SHAKESPEARE: cannot read" in done.stderr


def test_a_logs_folder_that_is_a_file_ends_with_2(command, corpus_file, tmp_path):
    (tmp_path / "logs").write_text("in the way")
    done = command(f"data.corpus={corpus_file}", "training.max_steps=1")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "set logs to a folder" in done.stderr
    assert (tmp_path / "logs").read_text() == "in the way"


@pytest.mark.parametrize(
    ("returned", "message"),
    [("inputs", r"must return logits \[3, \d+\], not \[2, 8\]"), ("inputs[positions, 99]", "but raises IndexError")],
)
def test_a_model_that_breaks_the_contract_is_told_so(corpus_file, returned: str, message: str):
    name = f"broken_{len(returned)}"

    @option(ModelConfigs.architecture, name)
    def broken(c: ModelConfigs) -> torch.nn.Module:
        class Broken(torch.nn.Module):
            def forward(self, inputs, positions):
                return eval(returned)

        return Broken()

    configs = configs_of({"data.corpus": str(corpus_file), "model.architecture": name, "device": "cpu"})
    with pytest.raises(ConfigError, match=message):
        _ = configs.network


def test_help(command):
    done = command("--help", tiny=False)
    assert done.returncode == 0
    assert "masking.masking_prob=0.15" in done.stdout
