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


def test_a_model_that_sees_the_labels_is_detected(train, monkeypatch):
    """Nothing is masked, neither in training nor in validation, so the loss falls below the lowest
    possible."""

    def without_masking(model, windows, masked, mask_token):
        class Leaky(torch.nn.Module):
            def forward(self, inputs, positions):
                start = without_masking.row
                without_masking.row += len(inputs)
                return model(windows[start : start + len(inputs)], positions)

        without_masking.row = 0
        model.eval()
        return masked_outcomes(Leaky(), windows, masked, mask_token)

    monkeypatch.setattr("data.corpus.play", partial(play, 30_000))
    keys = {
        "masking__randomize_prob": 0.0,
        "masking__no_change_prob": 1.0,
        "training__chars_per_step": 1024,
    }
    keys |= {"training__max_steps": 300, "training__evaluations": 6, "model__n_layers": 1}
    configs = configs_for("play", **keys)
    configs.trainer.evaluator = replace(configs.evaluator, outcomes_of=without_masking)
    with pytest.raises(HealthCheckError, match="labels leak into the inputs"):
        train(configs, data__corpus="play", **keys)


def test_an_honest_model_on_the_play_reports_its_excess(train, monkeypatch, empty_cache):
    monkeypatch.setattr("data.corpus.play", partial(play, 30_000))
    monkeypatch.delenv("FOLIO_TINY_SHAKESPEARE", raising=False)
    monkeypatch.setattr("data.corpus.TINY_SHAKESPEARE_URL", "http://127.0.0.1:1/input.txt")
    # without the text, auto is the play
    rows = train(data__corpus="auto", training__max_steps=40).callbacks.rows
    for row in rows:
        assert row["corpus"] == "play"
        assert row["excess"] == row["loss.valid"] - row["floor.valid"] > 0
    assert rows[-1]["excess"] < rows[0]["excess"]


@pytest.mark.parametrize("seed", range(8))
def test_a_nearly_perfect_model_is_not_accused(seed: int):
    """Of all honest models, those that know the grammar almost exactly are the hardest to tell from
    a leak."""
    automaton, other = random_automaton(seed, n_states=6), random_automaton(seed + 100, n_states=6)
    floor, losses = losses_of(automaton, mixed(automaton, other, 0.01), 100, seed)
    check_for_leak(losses, floor)
    with pytest.raises(HealthCheckError):
        check_for_leak(floor - 0.2, floor + np.random.default_rng(seed).normal(0, 0.01, 100))
    with pytest.raises(HealthCheckError):
        check_for_leak(floor - 0.2, floor)  # the differences do not vary


def warnings_after(*rows: dict) -> list[str]:
    lines: list[str] = []
    trainer, checks = SimpleNamespace(report=lines.append), HealthChecks(unigram=3.35)
    for row in rows:
        resumed = HealthChecks(unigram=3.35)
        resumed.load_state_dict(checks.state_dict())  # a resumed run goes on counting
        checks = resumed
        checks.evaluated(trainer, row, None)
    return lines


def test_a_plateau_is_several_late_evaluations_near_unigram():
    early, near, learned = (
        {"loss.valid": loss, "chars": n} for loss, n in ((3.3, 9e5), (3.3, 1e6), (2.0, 1e6))
    )
    assert "stays near unigram" in warnings_after(near, near, near)[0]
    assert len(warnings_after(early, early, near, near)) == 1  # once
    assert not warnings_after(early, early, early)
    assert not warnings_after(near, near)
    assert not warnings_after(near, near, learned, near)


def test_many_ignored_labels_are_warned_about_once():
    few, many = (
        {"loss.valid": 1.0, "ignored_labels": share, "chars": 0} for share in (0.005, 0.02)
    )
    (line,) = warnings_after(few, few, many, many)
    assert "2% of the selected positions have no label" in line


def test_a_run_that_masks_nothing_stops_with_the_reason(train, tmp_path):
    path = written(tmp_path / "text.txt", "ab" * 20_000)
    keys = {"masking__no_mask_tokens": "a", "training__stages": [{"until": 1.0, "seq_len": 2}]}
    trained = train(data__corpus=path, masking__masking_prob=1.0, training__max_steps=4, **keys)
    row = trained.callbacks.rows[-1]
    assert row["ignored_labels"] == 0.5
    with pytest.raises(HealthCheckError, match="no character was masked since the last evaluation"):
        check_row(row | {"ignored_labels": 1.0, "loss.train": float("nan")})
    with pytest.raises(
        HealthCheckError, match=r"nan in validation at step 4 .* lower training\.learning_rate"
    ):
        check_row(row | {"loss.valid": float("nan")})
