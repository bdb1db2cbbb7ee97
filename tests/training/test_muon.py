import copy
import math

import pytest
import torch
from torch import nn

from training.optimizers import STEPS, A, B, C, Muon, orthogonal


@pytest.mark.parametrize("shape", [(4, 32, 32), (3, 64, 24), (2, 24, 64), (1, 1, 5)])
def test_what_is_made_orthogonal_keeps_its_directions_and_loses_its_singular_values(shape):
    _, rows, columns = shape
    generator = torch.Generator().manual_seed(0)
    u, _, vt = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    matrices = u * torch.linspace(0.1, 1, min(rows, columns)) @ vt
    made = orthogonal(matrices)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.65
    assert values.max() < 1.25
    ideal = u @ vt
    assert (made * ideal).sum() / (made.norm() * ideal.norm()) > 0.97


@pytest.mark.parametrize("shape", [(2, 48, 128), (2, 128, 48), (2, 48, 64)])
@pytest.mark.parametrize("smallest", [1e-1, 1e-4, 1e-8])
def test_wide_narrow_and_ill_conditioned_matrices_go_through_the_same_iteration(shape, smallest):
    generator = torch.Generator().manual_seed(0)
    u, _, vt = torch.linalg.svd(torch.randn(shape, generator=generator).double(), full_matrices=False)
    matrices = u * torch.logspace(0, math.log10(smallest), u.shape[2]) @ vt
    values = torch.linalg.svdvals(matrices)  # the iteration changes these alone
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(STEPS):
        values = A * values + B * values**3 + C * values**5
    expected = u * values[:, None] @ vt
    assert (orthogonal(matrices.float()) - expected).norm() < 1e-3 * expected.norm()


def test_the_size_of_a_matrix_does_not_matter_and_nothing_stays_nothing():
    matrices = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(orthogonal(matrices), orthogonal(1e-3 * matrices), atol=1e-4)
    assert (orthogonal(torch.zeros(1, 4, 4)) == 0).all()


@pytest.mark.parametrize("momentum", [0.9, 0.95])
def test_it_goes_where_pytorchs_own_goes(momentum):
    """That one computes in bfloat16: the ways agree to its precision."""
    torch.manual_seed(0)
    ours = nn.ModuleList([nn.Linear(24, 24, bias=False), nn.Linear(24, 48, bias=False), nn.Linear(24, 24, bias=False)])
    theirs = copy.deepcopy(ours)
    begin = [matrix.detach().clone() for matrix in ours.parameters()]
    optimizers = (
        Muon(ours.parameters(), lr=0.02, weight_decay=0.1, momentum=momentum),
        torch.optim.Muon(theirs.parameters(), lr=0.02, weight_decay=0.1, momentum=momentum),
    )
    for seed in range(10):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            generator = torch.Generator().manual_seed(seed)
            for matrix in model.parameters():
                matrix.grad = torch.randn(matrix.shape, generator=generator)
            optimizer.step()
    for matrix, other, first in zip(ours.parameters(), theirs.parameters(), begin, strict=True):
        assert (matrix - other).norm() < 0.03 * (matrix - first).norm()


def test_what_has_no_gradient_stays():
    layer, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    before = other.weight.detach().clone()
    layer.weight.grad = torch.ones(4, 4)
    Muon([layer.weight, other.weight], lr=0.1, weight_decay=0.1).step()
    assert torch.equal(other.weight, before)
