"""The second objective is learnt: pairs of text that was never seen are told apart."""

import math

import pytest
import torch

from configs.command_line import resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from data.pairs import PairWindows, speech_borders
from data.play.grammar import play
from tests.conftest import TINY
from training.evaluation import evaluate_pairs
from training.optimizers import set_learning_rate
from training.schedule import Stage

STEPS, SEEDS = 300, 8  # at most: how long the loss stays at that of guessing depends on every digit


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_a_model_of_the_play_clearly_beats_the_base_rate(objective):
    assert any(beats_the_base_rate(objective, seed) for seed in range(SEEDS))


def beats_the_base_rate(objective: str, seed: int) -> bool:
    keys = {
        "data.corpus": "play",
        "seed": seed,
        f"objective.{objective}": True,
        "model.d_model": 96,
        "model.n_layers": 3,
        "model.n_heads": 3,
        "model.d_ff": 96,
        "training.chars_per_step": 2048,
        "training.stages": [{"until": 1.0, "seq_len": 64}],
    }
    configs = configs_of(resolve(TINY, keys))
    source: PairWindows = configs.data.windows
    held_out = PairWindows(
        configs.data.validation_ids,
        speech_borders(configs.data.loaded.validation),
        objective=objective,
        cls_token=source.cls_token,
        sep_token=source.sep_token,
        seed=0,
        longest=64,
    ).draw(1_024, 64)
    for i in range(STEPS):
        set_learning_rate(configs.step.optimizers, min(1.0, (i + 1) / 50))
        configs.step(Stage(1.0, 64, 0.15))
        if (i + 1) % 100 == 0:
            loss, accuracy = evaluate_pairs(configs.network, held_out)
            if accuracy > 0.6 and loss < math.log(2):  # chance is 0.5, with a standard error of 0.016
                return True
    return False


@pytest.fixture
def play_file(tmp_path):
    """So short that no process of its own counts it beside the training."""
    path = tmp_path / "play.txt"
    path.write_text(play(90_000))
    return str(path)


def test_rows_tell_of_the_pairs_and_the_protocol_stays_on_plain_windows(train, play_file):
    trained = train(data__corpus=play_file, objective__nsp=True, training__max_steps=4)
    for row in trained.heard.rows:
        assert {"loss.nsp.train", "loss.nsp.valid", "accuracy.nsp.train", "accuracy.nsp.valid"} <= set(row)
    configs = trained.configs
    inputs = configs.data.validation.windows[:2]
    segment_0 = torch.zeros_like(inputs)
    plain = configs.network.eval()(inputs)
    both, pairs = configs.network.forward_pairs(inputs, torch.arange(inputs.numel()), segment_0)
    assert torch.allclose(plain, both, atol=1e-5)
    first = configs.network.encoder(inputs, segment_0)[:, 0]
    assert torch.allclose(configs.network.pair_head(first).squeeze(-1), pairs, atol=1e-5)
    assert inputs.max() < configs.data.vocabulary.n_chars  # no [CLS], no [SEP]


def test_a_pair_loss_changes_what_the_masked_loss_alone_would_not(train, play_file):
    """Both losses reach the weights: the head on [CLS] has a gradient, and so has the segment embedding."""
    trained = train(data__corpus=play_file, objective__sop=True, training__max_steps=2)
    fresh = configs_of(resolve(TINY, {"data.corpus": play_file, "objective.sop": True}))
    for name in ("pair_head.0.weight", "encoder.segment_embedding.weight"):
        assert not torch.equal(trained.configs.network.state_dict()[name], fresh.network.state_dict()[name])


@pytest.mark.parametrize("masking", ["span", "entity", "adaptive"])
def test_special_tokens_are_never_hidden(masking):
    configs = configs_of(resolve(TINY, {"data.corpus": "play", "objective.nsp": True, "masking.strategy": masking}))
    batch = configs.step._draw(Stage(1.0, 64, 0.5))
    assert batch.pairs is not None
    special = torch.tensor([configs.data.vocabulary.id_of(token) for token in ("[CLS]", "[SEP]")])
    assert not torch.isin(batch.labels, special).any()
    assert torch.isin(batch.inputs, special).sum(1).eq(3).all()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"objective.nsp": True, "objective.sop": True}, "choose one"),
        ({"objective.nsp": True, "model.architecture": "labml_nn"}, "no segments"),
        ({"objective.sop": True, "data.sampling": "shuffled"}, "data.sampling=random"),
        ({"objective.sop": True, "training.stages": [{"until": 1.0, "seq_len": 4}]}, "needs 5"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        resolve(TINY, keys)
