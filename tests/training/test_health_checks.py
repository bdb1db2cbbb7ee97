from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data.play.grammar import play
from tests.conftest import configs_for, written
from tests.data.play.test_floor import losses_of, mixed, random_automaton
from training.callbacks.health_checks import (
    HealthCheckError,
    HealthChecks,
    check_for_leak,
    check_row,
)
from training.evaluation import masked_outcomes


@pytest.fixture
def short_play(monkeypatch):
    monkeypatch.setattr("data.corpus.play", partial(play, 30_000))


def test_a_model_that_sees_the_labels_is_detected(train, short_play):
    """Nothing is masked, neither in training nor in validation, so the loss falls below the lowest
    possible."""

    def without_masking(model, windows, masked, mask_token, attention_mask):
        rest = iter(windows)

        def leaky(inputs, positions):
            original = torch.stack([next(rest) for _ in inputs])
            return model(original, positions)

        leaky.training = False
        leaky.eval = leaky.train = lambda *_: model.eval()
        return masked_outcomes(leaky, windows, masked, mask_token)

    configs = configs_for(
        "play",
        masking__randomize_prob=0.0,
        masking__no_change_prob=1.0,
        training__chars_per_step=1024,
        training__max_steps=300,
        training__evaluations=6,
        model__n_layers=1,
    )
    configs.trainer.evaluator = replace(configs.evaluator, outcomes_of=without_masking)

    with pytest.raises(HealthCheckError, match="labels leak into the inputs"):
        train(configs)


def test_an_honest_model_on_the_play_reports_its_excess(
    train, short_play, monkeypatch, empty_cache
):
    monkeypatch.delenv("FOLIO_TINY_SHAKESPEARE", raising=False)
    monkeypatch.setattr("data.text.download.URL", "http://127.0.0.1:1/input.txt")
    # without the text, auto is the play
    first, last = train(data__corpus="auto", training__max_steps=40).callbacks.rows

    for row in (first, last):
        assert row["corpus"] == "play"
        assert row["excess"] == row["loss.valid"] - row["floor.valid"] > 0

    assert last["excess"] < first["excess"]


@pytest.mark.parametrize("seed", range(8))
def test_a_nearly_perfect_model_is_not_accused(seed):
    """Of all honest models, those that know the grammar almost exactly are the hardest to tell from
    a leak."""
    automaton = random_automaton(seed, n_states=6)
    other = random_automaton(seed + 100, n_states=6)
    floor, losses = losses_of(automaton, mixed(automaton, other, 0.01), 100, seed)
    check_for_leak(losses, floor)

    noise = np.random.default_rng(seed).normal(0, 0.01, 100)

    # also if the differences do not vary
    for too_low in (floor - 0.2, floor - 0.2 - noise):
        with pytest.raises(HealthCheckError):
            check_for_leak(too_low, floor)


def warnings_after(*rows):
    lines = []
    trainer = SimpleNamespace(report=lines.append)
    checks = HealthChecks(unigram=3.35)

    for row in rows:
        state = checks.state_dict()
        checks = HealthChecks(unigram=3.35)
        checks.load_state_dict(state)  # a resumed run goes on counting
        checks.evaluated(trainer, row, None)

    return lines


EARLY = {"loss.valid": 3.3, "chars": 9e5}
NEAR = {"loss.valid": 3.3, "chars": 1e6}
LEARNED = {"loss.valid": 2.0, "chars": 1e6}


@pytest.mark.parametrize(
    ("rows", "n_warnings"),
    [
        ([NEAR, NEAR, NEAR], 1),
        ([EARLY, EARLY, NEAR, NEAR], 1),  # once
        ([EARLY, EARLY, EARLY], 0),
        ([NEAR, NEAR], 0),
        ([NEAR, NEAR, LEARNED, NEAR], 0),
    ],
)
def test_a_plateau_is_several_late_evaluations_near_unigram(rows, n_warnings):
    warnings = warnings_after(*rows)
    assert len(warnings) == n_warnings
    assert all("stays near unigram" in warning for warning in warnings)


def test_many_ignored_labels_are_warned_about_once():
    few = LEARNED | {"ignored_labels": 0.005}
    many = LEARNED | {"ignored_labels": 0.02}
    (line,) = warnings_after(few, few, many, many)

    assert "2% of the selected positions have no label" in line
    assert "masking.strategy" in line


def test_a_run_that_masks_nothing_stops_with_the_reason(train, tmp_path):
    trained = train(
        data__corpus=written(tmp_path / "text.txt", "ab" * 20_000),
        masking__no_mask_tokens="a",
        masking__masking_prob=1.0,
        training__stages=[{"until": 1.0, "seq_len": 2}],
        training__max_steps=4,
    )
    row = trained.callbacks.rows[-1]

    assert row["ignored_labels"] == 0.5

    nan = float("nan")

    with pytest.raises(HealthCheckError, match="no character was masked"):
        check_row(row | {"ignored_labels": 1.0, "loss.train": nan})

    with pytest.raises(
        HealthCheckError, match=r"step 4 .* lower training\.learning_rate"
    ):
        check_row(row | {"loss.valid": nan})
