"""The checkpoints that `checkpoint.keep_at` keeps."""

import pytest
import torch

from configs.keys import ConfigError
from runs.find import find_run
from runs.run_folder import RunFolderError
from tests.conftest import check_resumes, configs_for, one_line
from trained.initial_weights import copy_weights
from trained.load import load, load_trained
from training.checkpoint import load_checkpoint, load_weights

STEPS = 12  # of 512 characters
MARKS = ["1K", "5 steps", "4.6K tokens", "6144", "9M"]
KEPT = {"1K": 2, "5-steps": 5, "4.6K-tokens": 9, "6144": 12}  # and their steps


def states(run):
    paths = {name: run.checkpoints / f"at-{name}.safetensors" for name in run.kept()}
    return {name: load_checkpoint(path) for name, path in paths.items()}


def test_an_interrupted_run_keeps_the_checkpoints_of_one_that_is_not(train):
    runs = []

    def recorded(**keys):
        trained = train(**keys)
        runs.append(trained.run)
        return trained

    check_resumes(recorded, 7, training__max_steps=STEPS, checkpoint__keep_at=MARKS)
    whole, resumed = map(states, runs)

    assert [*whole] == [*resumed] == [*KEPT]
    for name, step in KEPT.items():
        assert whole[name].state["step"] == step
        assert whole[name].state["chars"] == step * 512
        torch.testing.assert_close(
            whole[name].weights, resumed[name].weights, rtol=0, atol=0
        )
    last = load_weights(runs[0].checkpoints / "last.safetensors")
    assert whole["6144"].weights["decoder_bias"].equal(last["decoder_bias"])


def test_a_kept_checkpoint_is_a_run_wherever_one_is_named(train, tmp_path):
    run = train(
        training__max_steps=4,
        checkpoint__keep_at=["1K"],
        folder=tmp_path / "logs/mlm/abc",
    ).run
    weights = load_weights(run.checkpoints / "at-1K.safetensors")
    trained = load_trained("ab@1K", tmp_path / "logs")

    assert trained.run.results == run.path / "at-1K"
    torch.testing.assert_close(
        dict(trained.model.state_dict()), weights, rtol=0, atol=0
    )
    best = load(run).model.state_dict()
    assert not best["decoder_bias"].equal(weights["decoder_bias"])

    configs = configs_for(run.config()["data.corpus"], seed=1)
    copy_weights(configs.network, configs.data.vocabulary, run.config(), trained.run)
    assert configs.network.state_dict()["decoder_bias"].equal(weights["decoder_bias"])

    with one_line(RunFolderError, "has no checkpoint '2K': it kept 1K"):
        find_run(f"{run.path}@2K", tmp_path / "logs")


def test_words_are_counted_by_the_tokens_that_they_have(train, text_file):
    text = text_file.read_text()
    validation = text[int(len(text) * 0.9) :]
    chars_per_word = len(validation) / len(validation.split())
    run = train(training__max_steps=8, checkpoint__keep_at=["0.5K words"]).run

    (kept,) = states(run).values()
    assert kept.state["step"] == -(-500 * chars_per_word // 512)


@pytest.mark.parametrize(
    "mark", ["5Q", "0", "-1", "5M years", "1M steps words", "{a: 1}"]
)
def test_a_mark_of_another_form_is_one_line(text_file, mark):
    with one_line(ConfigError, "checkpoint.keep_at: .* is not of the form 5M"):
        configs_for(text_file, checkpoint__keep_at=f"[{mark}]")
