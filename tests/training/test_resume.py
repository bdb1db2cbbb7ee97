"""The checkpoint holds everything that decides how training continues; anything missing would
change a weight or row.

Interrupts and resumes runs in this process; `test_interruption` does it with real processes.
"""

import pytest

from data.play.grammar import play
from tests.conftest import Recording, check_resumes, written
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
def text() -> str:
    return play(30_000)


DROPOUT = {"model.dropout": 0.2}
HALVES = {"training.grad_accum_steps": 2}
CASES = {  # keys, the step after which the run is stopped, knobs that a user changes
    "before the first evaluation": (
        DROPOUT | {"masking.strategy": "span", "masking.corrupt": "unit"},
        2,
        None,
    ),
    "right after an evaluation": (
        DROPOUT | {"masking.masks": "static", "masking.random_tokens": "unigram"},
        8,
        None,
    ),
    # in the middle of a stage
    "bytes": (DROPOUT | {"data.tokens": "bytes", "training.grad_accum_steps": 4}, 7, None),
    "bpe": (
        HALVES
        | {"data.tokens": "bpe:400", "masking.strategy": "adaptive", "data.sampling": "shuffled"},
        7,
        None,
    ),
    "mixture": (
        {"masking.strategy": "mixture", "masking.mixture": MIXTURE, "training.optimizer": "adamw"},
        7,
        None,
    ),
    "n-grams": (
        HALVES | {"model.ngrams": 4, "model.ngram_dropout": 0.1, "data.unknown_below": 0.01},
        7,
        None,
    ),
    "labml_nn": (LABML, 7, None),
    "pairs of text": ({"objective.nsp": True}, 7, None),
    "after a knob was changed": ({}, 7, {"learning_rate_factor": 0.5, "masking_prob": 0.3}),
}


@pytest.mark.parametrize(("keys", "stop_after", "knobs"), CASES.values(), ids=CASES)
def test_an_interrupted_run_ends_like_one_that_is_not(
    tmp_path, monkeypatch, train, text, keys, stop_after, knobs
):
    monkeypatch.setattr("data.windows.pairs.VALIDATION_PAIRS", 16)
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 4)
    path = written(tmp_path / "play.txt", text)
    keys = {"data.corpus": path, "training.max_steps": STEPS, "training.evaluations": 3, **keys}

    def change_knobs(callbacks: Recording) -> None:
        # from the first evaluation on; a resumed run keeps them without another request
        callbacks.wanted = knobs

    check_resumes(
        train,
        stop_after,
        on_row=change_knobs,
        **{key.replace(".", "__"): keys[key] for key in keys},
    )


def test_a_run_whose_checkpoints_a_thread_writes_ends_like_one_that_is_not_interrupted(
    monkeypatch, train
):
    monkeypatch.setattr(
        "configs.callbacks.Recorder", lambda *args, **_: Recorder(*args, in_background=True)
    )
    check_resumes(train, 7, training__max_steps=STEPS, checkpoint__every_seconds=0.01)
