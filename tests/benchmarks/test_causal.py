import json
import math
from argparse import Namespace

import pytest
import torch

from benchmarks import causal, trials
from benchmarks.causal import twin_keys, variants, window_losses
from benchmarks.causal_twin import NextCharacter, visible_ngrams
from benchmarks.command import preset_values
from configs.command_line import presets
from configs.experiment import configs_of
from data.corpus import load_corpus
from model.ngrams import NGRAMS
from tests.conftest import TINY
from training.objective import masked_loss

N_TOKENS, MASK, SEQ_LEN = 30, 29, 24
TEXT = torch.randint(28, (3, SEQ_LEN), generator=torch.Generator().manual_seed(1))
KEYS = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2, "model.d_ff": 48, "model.ngram_rows": 512}


def built(architecture: str, ngrams: int) -> torch.nn.Module:
    configs = configs_of(KEYS | {"model.architecture": architecture, "model.ngrams": ngrams})
    configs.model.n_tokens = N_TOKENS
    torch.manual_seed(0)
    return configs.model.architecture.eval()


def with_other_weights(model: torch.nn.Module) -> torch.nn.Module:
    """No weight is zero, as if the model had been trained."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


@torch.no_grad()
def logits_of(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """`[batch, seq_len, n_tokens]`, as in training."""
    batch = NextCharacter(MASK)(text, text, 1.0)
    return model(batch.inputs, batch.positions).view(*text.shape, -1)


@pytest.mark.parametrize("ngrams", [0, 2, 4])
def test_a_prediction_depends_on_all_earlier_characters_and_on_no_other(ngrams):
    model = with_other_weights(built("causal", ngrams))
    before = logits_of(model, TEXT)
    for i in range(SEQ_LEN):
        changed = TEXT.clone()
        changed[:, i] = (TEXT[:, i] + 1) % 28
        difference = (logits_of(model, changed) - before).abs().amax(-1)
        assert (difference[:, : i + 1] < 1e-5).all()
        assert (difference[:, i + 1 :] > 1e-5).all()


@pytest.mark.parametrize("ngrams", [0, 4])
def test_the_twin_has_the_weights_of_modern(ngrams):
    ours, theirs = (dict(built(name, ngrams).named_parameters()) for name in ("causal", "modern"))
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_logits_at_positions_are_those_of_all_positions():
    model = with_other_weights(built("causal", 4))
    logits, positions = model(TEXT), torch.tensor([[1, 7], [30, 24], [71, 50]])
    assert torch.allclose(model(TEXT, positions.flatten()), logits[positions.flatten()], atol=1e-5)
    assert torch.allclose(model(TEXT, positions), logits[positions.flatten()], atol=1e-5)


@pytest.mark.parametrize("longest", [0, 2, 3, 4])
def test_there_are_as_many_ngrams_of_each_length_as_in_modern(longest):
    ngrams = visible_ngrams(longest)
    assert sorted(map(len, ngrams)) == sorted(len(ngram) for ngram in NGRAMS if len(ngram) <= longest)
    assert len(set(ngrams)) == len(ngrams)
    assert max((max(ngram) for ngram in ngrams), default=0) == 0


def test_every_character_of_a_window_is_a_label_and_is_seen_one_position_later():
    offsets = 100 + torch.arange(TEXT.numel()).view_as(TEXT)
    batch = NextCharacter(MASK)(TEXT, offsets, masking_prob=0.15)
    assert torch.equal(batch.inputs[:, 1:], TEXT[:, :-1])
    assert batch.inputs[:, 0].tolist() == [MASK] * len(TEXT)
    assert torch.equal(batch.labels, TEXT.flatten())
    assert torch.equal(batch.offsets[batch.positions], offsets.flatten())
    second = batch.part(slice(1, 2))  # as a second process would take it
    assert torch.equal(second.labels, TEXT[1])
    assert torch.equal(second.positions, torch.arange(SEQ_LEN))


def test_the_measured_nats_are_the_loss_of_training_and_a_chain_of_conditionals():
    model = with_other_weights(built("causal", 4))
    losses = window_losses(model, TEXT, MASK)
    mean = masked_loss(model, NextCharacter(MASK)(TEXT, TEXT, 1.0)).loss_sum / TEXT.numel()
    assert losses.mean().item() == pytest.approx(mean.item(), abs=1e-5)
    log_probability = 0.0  # of the first window, of which the model sees only the beginning
    for t in range(SEQ_LEN):
        seen = torch.cat([torch.tensor([MASK]), TEXT[0, :t]])[None]
        log_probability += model(seen).log_softmax(-1)[-1, TEXT[0, t]].item()
    assert losses[0].item() == pytest.approx(-log_probability / SEQ_LEN, abs=1e-5)


@pytest.mark.parametrize("preset", presets())
def test_the_twin_of_a_preset_keeps_its_windows(preset):
    stages = preset_values(preset, {})["training.stages"]
    windows = [(row["until"], row["seq_len"]) for row in stages]
    assert [(row["until"], row["seq_len"]) for row in twin_keys(preset)["training.stages"]] == windows


def test_twins_differ_in_their_ngrams_only_if_the_preset_has_some():
    assert list(variants("modernbert")) == ["the preset"]
    assert {key for keys in variants("quick").values() for key in keys} == {"model.ngrams", "model.ngram_dropout"}


def test_a_twin_is_trained_and_measured(tmp_path, corpus_file, monkeypatch, capsys):
    monkeypatch.setattr(trials, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(causal, "COMMON", TINY | {"training.max_steps": 60})
    monkeypatch.setattr(causal, "variants", lambda preset: {"small": {"model.ngrams": 3}})
    causal.main(Namespace(preset="quick", corpus=str(corpus_file), seconds=1000.0, seeds=1), tmp_path / "causal")
    (row,) = json.loads((tmp_path / "causal.json").read_text())["trials"]
    results, corpus = row["results"], load_corpus(str(corpus_file))
    assert results["chars"] == 60 * TINY["training.chars_per_step"]
    assert results["n_windows"] == len(corpus.validation) // 256
    assert results["bits"] == pytest.approx(results["nats"] / math.log(2))
    assert 0 < results["nats_stderr"] < 0.1 < results["nats"] < 2.9
    assert f"{results['nats']:.4f} ± {results['nats_stderr']:.4f} nats" in capsys.readouterr().out
