import pytest
import torch

from benchmarks.models import MODELS
from configs.experiment import configs_of

KEYS = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2, "model.d_ff": 48}
INPUTS = torch.randint(30, (3, 20), generator=torch.Generator().manual_seed(1))


def built(architecture: str) -> torch.nn.Module:
    configs = configs_of(KEYS | {"model.architecture": architecture})
    configs.model.n_tokens = 30
    return configs.model.architecture.eval()


def test_fused_attention_computes_the_same_function_as_labml_nn():
    theirs, ours = built("labml_nn"), built("fused")
    ours.load_state_dict(theirs.state_dict())
    assert torch.allclose(ours(INPUTS), theirs(INPUTS), atol=1e-5)
    assert torch.allclose(ours(INPUTS, torch.tensor([5, 44])), theirs(INPUTS)[[5, 44]], atol=1e-5)


@pytest.mark.parametrize("architecture", ["hugging_face_bert", "hugging_face_modernbert"])
def test_a_hugging_face_model_gives_its_own_logits_at_the_positions(architecture):
    model, positions = built(architecture), torch.tensor([44, 5])  # in any order
    expected = model.model(input_ids=INPUTS).logits.flatten(0, 1)
    assert torch.allclose(model(INPUTS), expected, atol=1e-6)
    assert torch.allclose(model(INPUTS, positions), expected[positions], atol=1e-6)


@pytest.mark.parametrize("architecture", ["fused", "rotary"])
def test_every_model_knows_positions(architecture):
    """By sinusoids or by rotation: swapping two tokens changes the logits at a third position."""
    model, swapped = built(architecture), INPUTS.clone()
    swapped[:, [2, 5]] = INPUTS[:, [5, 2]]
    third = torch.tensor([9])
    assert INPUTS[0, 2] != INPUTS[0, 5]
    assert (model(INPUTS, third) - model(swapped, third)).abs().max() > 1e-4


def test_an_initialized_model_depends_on_the_token_alone():
    """The output of every layer begins at zero, and no position is added to the embedding."""
    logits = built("initialized")(INPUTS)
    same = (INPUTS.flatten() == INPUTS.flatten().mode().values).nonzero().flatten()
    assert len(same) > 1
    assert torch.allclose(logits[same], logits[same[0]].expand(len(same), -1), atol=1e-6)


def test_rotary_models_add_no_sinusoids_and_gated_ones_have_a_gate():
    for name, changes in MODELS.items():
        model = built(name)
        assert bool(model.src_embed.positional_encodings.any()) != changes.get("rotary", False)
        assert model.encoder.layers[0].feed_forward.is_gated == changes.get("geglu", False)
