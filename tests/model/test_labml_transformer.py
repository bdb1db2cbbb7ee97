import importlib
import sys
from unittest.mock import Mock

import pytest
import torch

from tests.model.conftest import INPUTS, built


@pytest.fixture
def model():
    sizes = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2}
    return built("labml_nn", sizes)


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
