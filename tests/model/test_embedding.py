import pytest
import torch
from torch import nn

from model.embedding import Embedding


@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_it_is_pytorchs_embedding_with_pytorchs_gradient(shape):
    theirs, ours = nn.Embedding(11, 4), Embedding(11, 4)
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randint(11, shape, generator=torch.Generator().manual_seed(0))
    weights = torch.randn((*shape, 4), generator=torch.Generator().manual_seed(1))
    found = []
    for embedding in (theirs, ours):
        rows = embedding(tokens)
        (rows * weights).sum().backward()
        found.append((rows.detach(), embedding.weight.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1])


def test_what_is_no_token_is_refused():
    """A label to be ignored that leaked into the inputs would else be taken for a token, counted from the end."""
    with pytest.raises(IndexError):
        Embedding(11, 4)(torch.tensor([3, -1]))
