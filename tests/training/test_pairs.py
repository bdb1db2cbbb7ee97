"""The second objective: it is learned, reported, and leaves the protocol as it is."""

import math
import random
from string import ascii_lowercase

import pytest
import torch

from data.play.grammar import play
from data.windows.pairs import PairWindows
from tests.conftest import configs_for, written
from training.optimizers import set_learning_rate
from training.pair_objective import evaluate_pairs
from training.schedule import Stage


def topics(generator):
    """Speeches that consist of one letter, which changes seldom: a speech resembles the one that
    follows it."""
    letter = "a"
    speeches = []

    for _ in range(1_500):
        if generator.random() < 0.05:
            letter = generator.choice("abcdefghijkl")

        letters = generator.choices(
            letter + letter.upper(), k=generator.randint(16, 30)
        )
        speeches.append("".join(letters))

    return speeches


def alphabets(generator):
    """Each letter several times, in alphabetical order: the order of two neighboring pieces shows."""
    speeches = []
    for _ in range(150):
        letters = [letter * generator.randint(6, 10) for letter in ascii_lowercase]
        speeches.append("".join(letters))

    return speeches


@pytest.mark.parametrize(
    ("objective", "speeches_of", "steps", "least_accuracy"),
    [("nsp", topics, 125, 0.7), ("sop", alphabets, 75, 0.95)],
)
def test_unseen_pairs_are_told_apart(
    tmp_path, objective, speeches_of, steps, least_accuracy
):
    path = written(tmp_path / "text.txt", "\n\n".join(speeches_of(random.Random(0))))
    keys = {
        f"objective__{objective}": True,
        "training__stages": [{"until": 1.0, "seq_len": 32}],
        "training__chars_per_step": 2_048,
        "training__learning_rate": 5e-4,  # at the width of the tests, AdamW has four times as much
    }
    configs = configs_for(path, **keys)
    data = configs.data
    source = PairWindows(
        objective, data.validation_ids, data.loaded.validation, data.vocabulary, 0, 32
    )
    unseen = source.draw(512, 32)

    for i in range(steps):
        set_learning_rate(
            configs.update.optimizers, min(1.0, (i + 1) / 20, (steps - i) / 30)
        )
        configs.step(Stage(1.0, 32, 0.15))

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
    expected = {
        f"loss.{name}.train",
        f"loss.{name}.valid",
        f"accuracy.{name}.train",
        f"accuracy.{name}.valid",
    }

    for row in trained.callbacks.rows:
        assert expected <= set(row)

    data = trained.configs.data
    network = trained.configs.network.eval()
    inputs = data.validation_set.windows[:2]

    assert inputs.max() < data.vocabulary.n_ordinary  # no [CLS], no [SEP]

    segment_0 = torch.zeros_like(inputs)
    positions = torch.arange(inputs.numel())
    logits, pair_logits = network.forward_pairs(inputs, positions, segment_0)
    first = network.encoder(inputs)[:, 0]

    assert torch.allclose(network(inputs), logits, atol=1e-5)
    assert torch.allclose(network.pair_head(first).squeeze(-1), pair_logits, atol=1e-5)

    # the loss of the pairs trains the head and the segments
    weights = network.state_dict()
    fresh = configs_for(play_file, **objective).network.state_dict()

    for part in ("pair_head.0.weight", "encoder.segment_embedding.weight"):
        assert not torch.equal(weights[part], fresh[part])
