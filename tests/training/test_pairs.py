"""The second objective: it is learned, reported, and leaves the protocol as it is."""

import math
import random

import pytest
import torch

from data.play.grammar import play
from data.windows.pairs import PairWindows
from tests.conftest import configs_for, written
from training.optimizers import set_learning_rate
from training.pair_objective import evaluate_pairs
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)


def topics():
    """Speeches that consist of one letter, which changes seldom: a speech resembles the one that
    follows it."""
    generator, letter, speeches = random.Random(0), "a", []
    for _ in range(1_500):
        if generator.random() < 0.05:
            letter = generator.choice("abcdefghijkl")
        speeches.append(
            "".join(generator.choices(letter + letter.upper(), k=generator.randint(16, 30)))
        )
    return "\n\n".join(speeches)


def alphabets():
    """Each letter several times, in alphabetical order: the order of two neighboring pieces shows."""
    generator = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "\n\n".join(
        "".join(letter * generator.randint(6, 10) for letter in letters) for _ in range(150)
    )


@pytest.mark.parametrize(
    ("objective", "text", "steps", "least_accuracy"),
    [("nsp", topics, 125, 0.7), ("sop", alphabets, 75, 0.95)],
)
def test_unseen_pairs_are_told_apart(tmp_path, objective, text, steps, least_accuracy):
    stages = [{"until": 1.0, "seq_len": STAGE.seq_len}]
    keys = {
        f"objective__{objective}": True,
        "training__stages": stages,
        "training__chars_per_step": 2_048,
    }
    # at the width of the tests, AdamW has four times as much
    keys |= {"training__learning_rate": 5e-4}
    configs = configs_for(written(tmp_path / "text.txt", text()), **keys)
    data, longest = configs.data, STAGE.seq_len
    source = PairWindows(
        objective, data.validation_ids, data.loaded.validation, data.vocabulary, 0, longest
    )
    unseen = source.draw(512, longest)
    for i in range(steps):
        set_learning_rate(configs.step.update.optimizers, min(1.0, (i + 1) / 20, (steps - i) / 30))
        configs.step(STAGE)
    loss, accuracy = evaluate_pairs(configs.network, unseen)
    assert loss < math.log(2)
    assert accuracy > least_accuracy  # guessing: 0.5 with a standard error of 0.02


@pytest.mark.parametrize("name", ["nsp", "sop"])
def test_rows_report_the_pairs_and_the_protocol_has_plain_windows(
    train, tmp_path, monkeypatch, name
):
    monkeypatch.setattr("data.windows.pairs.VALIDATION_PAIRS", 64)
    # so short that it is counted in this process
    play_file = written(tmp_path / "play.txt", play(90_000))
    objective = {f"objective__{name}": True}
    trained = train(data__corpus=play_file, training__max_steps=4, **objective)
    for row in trained.callbacks.rows:
        assert {
            f"{what}.{name}.{part}" for what in ("loss", "accuracy") for part in ("train", "valid")
        } <= set(row)
    configs = trained.configs
    inputs = configs.data.validation.windows[:2]
    segment_0 = torch.zeros_like(inputs)
    plain = configs.network.eval()(inputs)
    logits, pair_logits = configs.network.forward_pairs(
        inputs, torch.arange(inputs.numel()), segment_0
    )
    assert torch.allclose(plain, logits, atol=1e-5)
    first = configs.network.encoder(inputs)[:, 0]
    assert torch.allclose(configs.network.pair_head(first).squeeze(-1), pair_logits, atol=1e-5)
    assert inputs.max() < configs.data.vocabulary.n_ordinary  # no [CLS], no [SEP]
    # the loss of the pairs trains the head and the segments
    fresh = configs_for(play_file, **objective)
    for part in ("pair_head.0.weight", "encoder.segment_embedding.weight"):
        assert not torch.equal(configs.network.state_dict()[part], fresh.network.state_dict()[part])
