"""Everything that decides the future is in the checkpoint: what is left out shows as another weight or row."""

import pytest

from configs.command_line import resolve
from configs.experiment import configs_of
from data.play.grammar import play
from tests.conftest import TINY, Heard
from tests.training.test_resume import TIMES
from training.checkpoint import load_weights
from training.resume import resume

MIXTURE = [{"until": 1.0, "span": 1, "random": 1}]
KNOBS = {"learning_rate_factor": 0.5, "masking_prob": 0.3}
LABML = {
    "model.architecture": "labml_nn",
    "masking.strategy": "labml_nn",
    "data.sampling": "shuffled",
    "training.optimizer": "noam",
    "training.learning_rate": 1.0,
    "training.stages": [{"until": 1.0, "seq_len": 32}],
}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"model.dropout": 0.2, "training.grad_accum_steps": 4},
        {"masking.strategy": "span", "masking.corrupt": "unit"},
        {"masking.masks": "static", "masking.random_tokens": "unigram"},
        {"masking.strategy": "adaptive", "data.sampling": "shuffled", "training.grad_accum_steps": 2},
        {"masking.strategy": "mixture", "masking.mixture": MIXTURE, "training.optimizer": "adamw"},
        LABML,
    ],
    ids=["default", "dropout", "span", "static", "adaptive", "mixture", "labml_nn"],
)
def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path, train, keys):
    check(tmp_path, train, keys, 13, wanted=None)  # in the middle of a stage, and of an interval


@pytest.mark.parametrize("stop_after", [3, 24], ids=["at once", "at the end of an interval"])
def test_wherever_it_was_interrupted(tmp_path, train, stop_after):
    check(tmp_path, train, {"model.dropout": 0.2}, stop_after, wanted=None)


def test_also_with_pairs_of_text(tmp_path, train):
    check(tmp_path, train, {"objective.nsp": True}, 13, wanted=None)


def test_also_where_a_knob_was_turned_before(tmp_path, train):
    check(tmp_path, train, {}, 17, wanted=KNOBS)


def check(tmp_path, train, keys, stop_after, wanted) -> None:
    path = tmp_path / "play.txt"
    path.write_text(play(60_000))
    values = {"data.corpus": str(path), "training.max_steps": 32, "training.evaluations": 4, **keys}
    arguments = {key.replace(".", "__"): value for key, value in values.items()}

    def turn(heard: Heard) -> None:
        heard.wanted = wanted  # from the first evaluation on

    whole = train(on_row=turn, **arguments)
    configs = configs_of(resolve(TINY, values))
    trainer = configs.trainer
    begun = train(configs, lambda: trainer.step >= stop_after, on_row=turn, **arguments)
    assert begun.configs.trainer.step == stop_after

    resumed = configs_of(resolve(TINY, values))
    resume(begun.run, resumed.trainer, begun.run.config(), resumed.data.loaded)
    resumed.trainer.train(begun.run, Heard(wanted=wanted))

    ends = [load_weights(run.checkpoints / "last.safetensors") for run in (whole.run, begun.run)]
    assert all(ends[0][name].equal(ends[1][name]) for name in ends[0])
    rows = [
        [{k: v for k, v in row.items() if k not in TIMES} for row in run.metrics()] for run in (whole.run, begun.run)
    ]
    assert rows[0] == rows[1]
