"""The two ends of the scale: a pipeline that learns reaches 0 where nothing is unknown, and one that does not
leak never gets below the entropy where nothing can be known."""

import math

import torch

LEARNING = {
    "model__d_model": 64,
    "model__d_ff": 64,
    "training__max_steps": 500,
    "training__evaluations": 8,
    "training__chars_per_step": 1024,
    "training__stages": [{"until": 0.5, "seq_len": 32}, {"until": 1.0, "seq_len": 256}],
}


def test_a_periodic_text_is_learnt_to_a_loss_near_zero(tmp_path, train):
    path = tmp_path / "periodic.txt"
    path.write_text("The quick brown fox jumps over a lazy dog!\n" * 400)
    trained = train(data__corpus=str(path), **LEARNING)
    assert trained.heard.rows[-1]["loss.valid"] < 0.05
    assert trained.heard.rows[-1]["accuracy.valid"] > 0.99


def test_independent_characters_are_never_predicted_below_their_entropy(tmp_path, train):
    generator = torch.Generator().manual_seed(0)
    characters = "abcdefghijklmnop"
    path = tmp_path / "noise.txt"
    path.write_text("".join(characters[i] for i in torch.randint(16, (60_000,), generator=generator)))
    trained = train(data__corpus=str(path), **LEARNING)
    entropy = math.log(16)
    for row in trained.heard.rows:
        assert row["loss.valid"] > entropy - 4 * row["loss.valid_stderr"]
    assert trained.heard.rows[-1]["loss.valid"] < entropy + 0.1  # it has learnt all there is: the frequencies
