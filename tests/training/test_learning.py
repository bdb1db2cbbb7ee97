"""The two extremes: a predictable text is learned to a loss near 0, an unpredictable one never
below its entropy."""

import math

import pytest
import torch

from tests.conftest import written

LEARNING = {
    "model__d_model": 64,
    "model__n_layers": 1,
    "training__evaluations": 3,
    "training__chars_per_step": 1024,
    "training__stages": [{"until": 0.4, "seq_len": 32}, {"until": 1.0, "seq_len": 256}],
}


@pytest.mark.parametrize("ngrams", [0, 4])
def test_a_periodic_text_is_learned_to_a_loss_near_zero(tmp_path, train, ngrams):
    path = written(tmp_path / "periodic.txt", "a lazy dog jumps\n" * 1_000)
    keys = {
        "model__ngrams": ngrams,
        "training__max_steps": 240,
        "training__learning_rate": 8e-3,
        **LEARNING,
    }
    rows = train(data__corpus=path, **keys).callbacks.rows
    assert rows[-1]["loss.valid"] < 0.05
    assert rows[-1]["accuracy.valid"] > 0.99


@pytest.mark.parametrize("ngrams", [0, 4])
def test_independent_characters_are_never_predicted_below_their_entropy(tmp_path, train, ngrams):
    generator = torch.Generator().manual_seed(0)
    text = "".join("abcdefghijklmnop"[i] for i in torch.randint(16, (60_000,), generator=generator))
    path = written(tmp_path / "noise.txt", text)
    rows = train(
        data__corpus=path, model__ngrams=ngrams, training__max_steps=100, **LEARNING
    ).callbacks.rows
    entropy = math.log(16)
    for row in rows:
        assert row["loss.valid"] > entropy - 4 * row["loss.valid_stderr"]
    assert rows[-1]["loss.valid"] < entropy + 0.1  # the frequencies, which is all there is to learn
