import pytest
import torch

from configs.experiment import configs_of
from model.labml_transformer import LabmlTransformer


@pytest.fixture
def model() -> LabmlTransformer:
    torch.manual_seed(0)
    configs = configs_of(
        {"model.architecture": "labml_nn", "model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2}
    )
    configs.model.n_tokens = 30
    return configs.model.architecture.eval()


INPUTS = torch.randint(30, (3, 20), generator=torch.Generator().manual_seed(1))


def test_the_logits_are_those_of_labml_nns_own_model(model, annotated):
    original = annotated.TransformerMLM(encoder=model.encoder, src_embed=model.src_embed, generator=model.generator)
    expected, _ = original(INPUTS.t())  # sequence first
    assert torch.equal(model(INPUTS), expected.transpose(0, 1).flatten(0, 1))
    positions = torch.tensor([5, 44])
    assert torch.allclose(model(INPUTS, positions), expected.transpose(0, 1).flatten(0, 1)[positions], atol=1e-6)


def test_it_is_the_annotated_experiments_architecture(model):
    assert [type(layer).__name__ for layer in model.encoder.layers] == ["TransformerLayer"] * 2
    assert type(model.src_embed).__name__ == "EmbeddingsWithPositionalEncoding"
    assert model.encoder.layers[0].dropout.p == 0.0  # Folio's default; the preset `annotated` sets 0.1
