import pytest
import torch

import benchmarks.models  # noqa: F401, registers the architectures
from configs.experiment import configs_of

KEYS = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2, "model.d_ff": 48}
INPUTS = torch.randint(30, (3, 20), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("architecture", ["hugging_face_bert", "hugging_face_modernbert"])
def test_a_hugging_face_model_gives_its_own_logits_at_the_positions(architecture):
    configs = configs_of(KEYS | {"model.architecture": architecture})
    configs.model.n_tokens = 30
    model, positions = configs.model.architecture.eval(), torch.tensor([44, 5])  # in any order
    expected = model.model(input_ids=INPUTS).logits.flatten(0, 1)
    assert torch.allclose(model(INPUTS), expected, atol=1e-6)
    assert torch.allclose(model(INPUTS, positions), expected[positions], atol=1e-6)
