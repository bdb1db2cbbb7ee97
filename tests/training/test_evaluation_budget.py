import json
from dataclasses import replace

import pytest
import torch

from configs.data import validation_windows
from data.play.grammar import play
from tests.conftest import Recording, configs_for, written
from training.callbacks.at_longest import AtLongest
from training.callbacks.evaluation_budget import FEWEST, EvaluationBudget
from training.evaluation import evaluate


@pytest.fixture(scope="module")
def long_play(tmp_path_factory):
    return written(tmp_path_factory.mktemp("play") / "play.txt", play(250_000))


def begun(path, seconds_per_window, has_documents=False, state=None, **keys):
    """The trainer of a run after its budget for evaluations has been decided."""
    trainer = configs_for(path, **keys).trainer
    if has_documents:
        validation = trainer.evaluator.validation
        numbers = torch.ones_like(validation.windows)
        validation = replace(validation, attention_mask=numbers)
        trainer.evaluator = replace(trainer.evaluator, validation=validation)
    budget = EvaluationBudget()
    budget.agreed = lambda measured: seconds_per_window
    if state:
        budget.load_state_dict(state)
    trainer.callbacks = [Recording(), budget]
    budget.begin(trainer)
    return trainer


SECONDS = {"training__max_seconds": 20, "training__max_steps": None}
STEPS = {"training__max_seconds": None, "training__max_steps": 400}


def test_if_all_windows_take_more_than_a_tenth_of_the_time_fewer_are_read(long_play):
    whole = configs_for(long_play).data.validation_set
    assert whole.n_windows == 97

    trainer = begun(long_play, seconds_per_window=0.03, **SECONDS)
    some = trainer.evaluator.validation

    assert some.n_windows == 64  # 66 would take a tenth
    known = {tuple(window) for window in whole.windows.tolist()}
    assert known.issuperset(map(tuple, some.windows.tolist()))
    lines = "\n".join(trainer.callbacks[0].lines)
    assert "the run 22 s" in lines
    assert "64 of 97 windows" in lines

    all_of_them = begun(long_play, seconds_per_window=0.02, **SECONDS)
    assert all_of_them.evaluator.validation.n_windows == 97

    fewest = begun(long_play, seconds_per_window=9.0, **SECONDS)
    assert fewest.evaluator.validation.n_windows == FEWEST


def test_a_run_limited_by_steps_does_not_follow_the_clock(long_play):
    one_text = begun(long_play, seconds_per_window=9.0, **STEPS)
    assert one_text.evaluator.validation.n_windows == 97

    numbers = []
    for seconds in (0.001, 9.0):
        trainer = begun(long_play, seconds, has_documents=True, **STEPS)
        numbers.append(trainer.evaluator.validation.n_windows)
    assert numbers[0] == numbers[1] < 97


def test_a_resumed_run_reads_the_windows_that_it_has_read(long_play):
    trainer = begun(long_play, seconds_per_window=0.03, **SECONDS)
    state = trainer.callbacks[1].state_dict()
    resumed = begun(long_play, seconds_per_window=9.0, state=state, **SECONDS)

    assert torch.equal(
        resumed.evaluator.validation.windows, trainer.evaluator.validation.windows
    )


def test_the_loss_at_the_longest_length_has_the_masks_of_the_protocol(long_play):
    configs = configs_for(long_play)
    trainer = configs.trainer
    protocol = configs.data.validation_set
    longest = validation_windows(configs.data, 512)
    n = longest.n_windows
    assert n == 48
    assert torch.equal(longest.windows, protocol.windows[: 2 * n].view(n, 512))
    assert torch.equal(longest.masked, protocol.masked[: 2 * n].view(n, 512))

    row = {}
    AtLongest(longest).measured(trainer, row, None)

    expected = evaluate(
        trainer.model, longest, configs.data.vocabulary.mask_token, seq_len=512
    )
    assert row["loss.valid_at_longest"] == pytest.approx(expected.loss)


def test_a_run_on_documents_reports_its_loss_at_256_and_at_its_longest_length(
    tmp_path, train
):
    lines = [json.dumps({"text": speech}) for speech in play(80_000).split("\n\n")]
    path = written(tmp_path / "speeches.jsonl", "\n".join(lines))
    trained = train(
        data__corpus=path,
        training__max_steps=4,
        training__stages=[{"until": 1.0, "seq_len": 512}],
    )
    row = trained.callbacks.rows[-1]

    assert 0 < row["loss.valid_at_longest"] < 10
    assert row["validation_windows"] == FEWEST
    assert {"uniform", "unigram", "counting"} <= trained.run.reference_lines().keys()
