from dataclasses import replace

import pytest
import torch

from data.vocabulary import Vocabulary
from tests.data.masking.helpers import generator
from tests.data.play.test_floor import random_automaton
from tests.model.conftest import small_model
from writing.beliefs import DISTINCTIONS, exact_beliefs, probe, residual_streams
from writing.truth import TruePosterior


def masks(*shape):
    return torch.rand(shape, generator=generator()) < 0.5


def test_streams_are_those_of_the_model():
    model = small_model(n_tokens=5, n_layers=3, dropout=0.5)
    inputs = torch.randint(0, 5, (4, 10))
    masked = masks(4, 10)

    streams = residual_streams(model, inputs, masked)

    assert list(streams) == ["embedding", "layer 1", "layer 2", "layer 3"]
    assert model.training

    model.eval()
    encoder = model.encoder
    positions = masked.flatten().nonzero()[:, 0]

    from_stream = model.predict(encoder.final_norm(streams["layer 3"]))

    assert torch.allclose(from_stream, model(inputs, positions), atol=1e-5)

    embedded = encoder.embedding_norm(encoder.embedding(inputs))

    assert torch.allclose(streams["embedding"], embedded[masked])


def test_a_probe_finds_what_is_linear_and_not_what_is_noise():
    draws = generator()
    masked = masks(200, 20)
    stream = torch.randn(int(masked.sum()), 8, generator=draws)
    belief = (stream @ torch.randn(8, 3, generator=draws) + 5).double()
    noise = torch.randn(belief.shape, generator=draws).double()
    streams = {"layer 1": stream, "embedding": torch.ones_like(stream)}

    explained = probe(streams, {"linear": belief, "noise": noise}, masked)

    assert explained["linear"] == pytest.approx(
        {"layer 1": 1, "embedding": 0}, abs=0.01
    )
    assert explained["linear"]["layer 1"] == pytest.approx(1, abs=1e-9)
    assert abs(explained["noise"]["layer 1"]) < 0.05


def test_a_probe_is_measured_on_other_windows_than_it_is_fitted_on():
    """With more features than characters a probe fits anything, and predicts nothing."""
    masked = masks(8, 10)
    draws = generator(1)
    stream = torch.randn(int(masked.sum()), 100, generator=draws)

    belief = torch.rand(len(stream), 2, generator=draws).double()

    assert probe({"layer 1": stream}, {"word": belief}, masked)["word"]["layer 1"] < 0.5


def test_beliefs_are_the_floors_at_masked_positions():
    automaton = random_automaton(0)
    states = range(len(automaton.characters))
    described = tuple(dict.fromkeys(DISTINCTIONS, str(state % 2)) for state in states)
    vocabulary = Vocabulary(automaton.alphabet)
    truth = TruePosterior(replace(automaton, descriptions=described), vocabulary)

    masked = masks(3, 6)
    inputs = vocabulary.encode(automaton.write(18, seed=0)).view(3, 6)
    inputs[masked] = vocabulary.mask_token

    beliefs = exact_beliefs(truth, inputs, masked)

    assert list(beliefs) == list(DISTINCTIONS)

    n = int(masked.sum())

    for belief in beliefs.values():
        assert belief.shape == (n, 2)
        assert belief.sum().item() == pytest.approx(n)
