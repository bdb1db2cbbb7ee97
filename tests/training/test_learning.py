"""The two extremes: a predictable text is learned to a loss near 0, an unpredictable one never
below its entropy."""

import math
import random

import pytest

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
    keys = LEARNING | {"training__max_steps": 240, "training__learning_rate": 8e-3}
    last = train(data__corpus=path, model__ngrams=ngrams, **keys).callbacks.rows[-1]

    assert last["loss.valid"] < 0.05
    assert last["accuracy.valid"] > 0.99


@pytest.mark.parametrize("ngrams", [0, 4])
def test_independent_characters_are_never_predicted_below_their_entropy(
    tmp_path, train, ngrams
):
    text = "".join(random.Random(0).choices("abcdefghijklmnop", k=60_000))
    path = written(tmp_path / "noise.txt", text)
    keys = LEARNING | {"training__max_steps": 100}
    rows = train(data__corpus=path, model__ngrams=ngrams, **keys).callbacks.rows

    entropy = math.log(16)

    for row in rows:
        assert row["loss.valid"] > entropy - 4 * row["loss.valid_stderr"]

    # the frequencies, which is all there is to learn
    assert rows[-1]["loss.valid"] < entropy + 0.1
