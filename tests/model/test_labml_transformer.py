import importlib
import sys
from unittest.mock import Mock

import pytest
import torch

from tests.model.conftest import INPUTS, built

SIZES = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2}


@pytest.fixture
def model():
    return built("labml_nn", SIZES)


def test_the_logits_are_those_of_labml_nns_own_model(model, monkeypatch):
    # labml_nn imports it; the real one needs a CUDA build
    monkeypatch.setitem(sys.modules, "torchvision", Mock())
    annotated = importlib.import_module("labml_nn.transformers.mlm.experiment")
    original = annotated.TransformerMLM(
        encoder=model.encoder, src_embed=model.src_embed, generator=model.generator
    )
    expected, _ = original(INPUTS.t())  # sequence first
    expected = expected.transpose(0, 1).flatten(0, 1)

    assert torch.equal(model(INPUTS), expected)

    positions = torch.tensor([5, 44])
    assert torch.allclose(model(INPUTS, positions), expected[positions], atol=1e-6)


def test_it_is_the_annotated_experiments_architecture(model):
    kinds = [type(layer).__name__ for layer in model.encoder.layers]
    first = model.encoder.layers[0]

    assert kinds == ["TransformerLayer"] * 2
    assert type(model.src_embed).__name__ == "EmbeddingsWithPositionalEncoding"
    assert first.dropout.p == 0.0  # Folio's default; the preset `annotated` sets 0.1


def test_learned_positions_begin_at_zero_and_learn():
    """Without positions, equal tokens have equal logits wherever they stand."""
    model = built("labml_nn_learned_positions", SIZES)
    same = torch.full((1, 8), 3)
    logits = model(same)

    assert torch.allclose(logits, logits[:1].expand_as(logits), atol=1e-6)

    logits[0].square().sum().backward()
    positions = model.src_embed.positional_encodings
    with torch.no_grad():
        positions -= positions.grad
    changed = model(same)

    assert not torch.allclose(changed, changed[:1].expand_as(changed), atol=1e-3)
