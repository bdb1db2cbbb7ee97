import pytest
import torch

from model.checkpointing import checkpoint_each
from tests.distributed.steps import new_memory
from tests.model.conftest import small_model

INPUTS = torch.randint(30, (8, 64), generator=torch.Generator().manual_seed(0))


def backward(model):
    torch.manual_seed(1)  # of dropout
    model.zero_grad()
    model(INPUTS).logsumexp(-1).sum().backward()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointed_layers_have_the_same_gradients_in_less_memory(dropout):
    model = small_model(n_layers=8, dropout=dropout)
    before = new_memory(lambda: backward(model))
    expected = [weight.grad.clone() for weight in model.parameters()]
    checkpoint_each(model.encoder.layers)

    assert new_memory(lambda: backward(model)) < before / 2
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.equal(weight.grad, gradient)
