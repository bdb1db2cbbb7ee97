"""The checkpoint holds everything that decides how training continues; anything missing would
change a weight or row.

Interrupts and resumes runs in this process; `test_interruption` does it with real processes.
"""

import pytest

from data.play.grammar import play
from tests.conftest import check_resumes, written
from training.callbacks.recorder import Recorder

STEPS = 12
MIXTURE = [{"until": 1.0, "span": 1, "random": 1}]
LABML = {
    "model.architecture": "labml_nn",
    "masking.strategy": "labml_nn",
    "data.sampling": "shuffled",
    "training.optimizer": "noam",
    "training.learning_rate": 1.0,
    "training.stages": [{"until": 1.0, "seq_len": 32}],
}


@pytest.fixture(scope="module")
def text():
    return play(30_000)


DROPOUT = {"model.dropout": 0.2}
HALVES = {"training.grad_accum_steps": 2}
CASES = {  # keys
    "before the first evaluation": DROPOUT
    | {"masking.strategy": "span", "masking.corrupt": "unit"},
    "right after an evaluation": DROPOUT
    | {"masking.masks": "static", "masking.random_tokens": "unigram"},
    "bytes": DROPOUT | {"data.tokens": "bytes", "training.grad_accum_steps": 4},
    "bpe": HALVES
    | {
        "data.tokens": "bpe:400",
        "masking.strategy": "adaptive",
        "data.sampling": "shuffled",
    },
    "mixture": {
        "masking.strategy": "mixture",
        "masking.mixture": MIXTURE,
        "training.optimizer": "adamw",
    },
    "n-grams": HALVES
    | {"model.ngrams": 4, "model.ngram_dropout": 0.1, "data.unknown_below": 0.01},
    "labml_nn": LABML,
    "pairs of text": {"objective.nsp": True},
    "after a knob was changed": {},
}
# the steps after which a run is stopped; else in the middle of a stage
STOPS = {"before the first evaluation": 2, "right after an evaluation": 8}


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_like_one_that_is_not(
    tmp_path, monkeypatch, train, text, case
):
    monkeypatch.setattr("data.windows.pairs.VALIDATION_PAIRS", 16)
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 4)

    def change_knobs(callbacks):
        # from the first evaluation on; a resumed run keeps them without another request
        if case == "after a knob was changed":
            callbacks.wanted = {"learning_rate_factor": 0.5, "masking_prob": 0.3}

    path = written(tmp_path / "play.txt", text)
    keys = {"data.corpus": path, "training.max_steps": STEPS, "training.evaluations": 3}
    keys |= CASES[case]
    by_name = {key.replace(".", "__"): value for key, value in keys.items()}
    check_resumes(train, STOPS.get(case, 7), on_row=change_knobs, **by_name)


def test_a_run_whose_checkpoints_a_thread_writes_ends_like_one_that_is_not_interrupted(
    monkeypatch, train
):
    monkeypatch.setattr(
        "configs.callbacks.Recorder",
        lambda *args, **_: Recorder(*args, in_background=True),
    )
    check_resumes(train, 7, training__max_steps=STEPS, checkpoint__every_seconds=0.01)
