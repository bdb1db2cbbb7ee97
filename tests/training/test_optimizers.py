import copy
import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from configs.training import muon
from model import MaskedLanguageModel
from model.ngrams import NGRAMS, NgramEmbedding
from tests.conftest import configs_for
from tests.model.conftest import small_model
from training import optimizers
from training.muon import STEPS, A, B, C, Muon, orthogonal
from training.optimizers import RowAdagrad, gradients_of

RATES = {"learning_rate": 1e-3, "table_learning_rate": 0.05, "weight_decay": 0.1}
MUON = {"muon_learning_rate": 0.02, "muon_momentum": 0.9}


def with_table() -> MaskedLanguageModel:
    return small_model(ngrams=NgramEmbedding(n_tokens=30, d_model=16, ngrams=NGRAMS, n_rows=50))


def muon_of(net: nn.Module) -> list[torch.optim.Optimizer]:
    root = SimpleNamespace(model=SimpleNamespace(d_model=128))  # the width whose rate the key has
    return muon(SimpleNamespace(network=net, root=lambda: root, **RATES, **MUON))


def test_the_rate_of_adamw_is_inverse_to_the_width_and_that_of_muon_is_not(corpus_file):
    narrow, wide = (
        configs_for(corpus_file, model__d_model=n).training.optimizer for n in (32, 128)
    )
    of_adamw, of_muon = (
        [each.param_groups[0]["lr"] for each in pair] for pair in zip(narrow, wide, strict=True)
    )
    assert of_adamw == [8e-3, 2e-3]
    assert of_muon == [0.02, 0.02]


def test_muon_gets_the_matrices_of_the_layers_and_adamw_all_other_parameters():
    net = small_model()
    adamw, of_matrices = muon_of(net)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    by_muon = [names[id(p)] for group in of_matrices.param_groups for p in group["params"]]
    by_adamw = [names[id(p)] for group in adamw.param_groups for p in group["params"]]
    assert sorted(by_muon + by_adamw) == sorted(names.values())
    assert of_matrices.param_groups[0]["momentum"] == 0.9
    assert len(by_muon) == 2 * 4
    assert all(name.startswith("encoder.layers.") and name.endswith("weight") for name in by_muon)


@pytest.mark.parametrize("build", [muon_of, partial(optimizers.adamw, **RATES)])
def test_tables_get_sparse_gradients_and_an_optimizer_of_their_own(build):
    """And norms and biases have no weight decay."""
    net = with_table()
    *others, by_row = build(net)
    for group in others[0].param_groups:
        assert all(group["weight_decay"] == (0.1 if p.ndim >= 2 else 0.0) for p in group["params"])
    table = net.encoder.ngrams.table.weight
    assert [p for group in by_row.param_groups for p in group["params"]] == [table]
    assert all(
        p is not table for other in others for group in other.param_groups for p in group["params"]
    )
    net(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    assert table.grad.is_sparse


def test_an_optimizer_of_the_users_own_can_train_the_tables():
    """PyTorch's optimizers for dense gradients refuse sparse ones."""
    net = with_table()
    before = net.encoder.ngrams.table.weight.detach().clone()
    optimizer = torch.optim.NAdam(net.parameters())
    net(torch.zeros(1, 4, dtype=torch.int64)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(net.encoder.ngrams.table.weight, before)


def test_row_adagrad_follows_its_formula_and_changes_no_other_row():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(9, 4, generator=generator)
    tables = [nn.Parameter(start.clone()) for _ in range(2)]
    sparse, dense = (RowAdagrad([table], lr=0.1) for table in tables)
    expected, sums = start.clone(), torch.zeros(9)
    for rows in ([0, 5, 7], [5], [2, 5]):
        gradient = torch.zeros(9, 4)
        gradient[rows] = torch.randn(len(rows), 4, generator=generator)
        tables[0].grad, tables[1].grad = gradient.to_sparse(1).coalesce(), gradient.clone()
        sparse.step()
        dense.step()
        for row in rows:
            sums[row] += gradient[row].square().mean()
            expected[row] -= 0.1 * gradient[row] / sums[row].sqrt()
    for table in tables:
        assert torch.allclose(table, expected, atol=1e-6)
        assert torch.equal(table[[1, 3, 4, 6, 8]], start[[1, 3, 4, 6, 8]])


def test_the_learning_rate_is_a_share_of_the_peak_of_each_optimizer():
    all_three = muon_of(with_table())
    for share in (0.5, 0.1, 1.0):
        optimizers.set_learning_rate(all_three, share)
        assert [o.param_groups[0]["lr"] for o in all_three] == [
            1e-3 * share,
            0.02 * share,
            0.05 * share,
        ]
    assert optimizers.learning_rate_of(all_three) == 1e-3


def test_noam_is_labml_nns_with_2000_steps_of_warmup(corpus_file):
    configs = configs_for(
        corpus_file, training__optimizer="noam", training__learning_rate=1.0, model__d_model=16
    )
    net, (noam,) = configs.network, configs.training.optimizer
    for step in range(1, 4):
        net(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        noam.step()
        assert optimizers.learning_rate_of([noam]) == 16**-0.5 * step * 2_000**-1.5


@pytest.mark.parametrize("shape", [(2, 48, 128), (2, 128, 48), (2, 48, 64), (4, 32, 32), (1, 1, 5)])
@pytest.mark.parametrize("smallest", [1e-1, 1e-4, 1e-8])
def test_every_shape_and_condition_gives_the_result_of_the_iteration(shape, smallest):
    """Singular values of at least a tenth come near one. The scale does not matter, and zeros stay
    zeros."""
    generator = torch.Generator().manual_seed(0)
    u, _, vt = torch.linalg.svd(
        torch.randn(shape, generator=generator).double(), full_matrices=False
    )
    matrices = u * torch.logspace(0, math.log10(smallest), u.shape[2]) @ vt
    values = torch.linalg.svdvals(matrices)  # the iteration changes only these
    values = values / values.norm(dim=1, keepdim=True)
    for _ in range(STEPS):
        values = A * values + B * values**3 + C * values**5
    expected, matrices = u * values[:, None] @ vt, matrices.float()
    for scale in (1.0, 1e-3):
        assert (orthogonal(scale * matrices) - expected).norm() < 1e-3 * expected.norm()
    assert smallest < 0.1 or (values - 0.95).abs().max() < 0.3
    assert (orthogonal(0 * matrices) == 0).all()


@pytest.mark.parametrize("shape", [(2, 256, 256), (2, 256, 512), (2, 512, 256)])
def test_large_matrices_may_be_orthogonal_to_the_precision_of_bfloat16(monkeypatch, shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("training.muon.CPU_HAS_BFLOAT16", False)
    expected = orthogonal(matrices)
    monkeypatch.setattr("training.muon.CPU_HAS_BFLOAT16", True)
    updates = orthogonal(matrices)
    assert (expected.dtype, updates.dtype) == (torch.float32, torch.bfloat16)
    assert (updates - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("momentum", [0.9, 0.95])
def test_muon_agrees_with_pytorchs_own(momentum):
    """PyTorch's Muon computes in bfloat16, so the paths of the weights agree to the precision of
    bfloat16."""
    torch.manual_seed(0)
    ours = nn.ModuleList(
        [
            nn.Linear(24, 24, bias=False),
            nn.Linear(24, 48, bias=False),
            nn.Linear(24, 24, bias=False),
        ]
    )
    theirs = copy.deepcopy(ours)
    start = [matrix.detach().clone() for matrix in ours.parameters()]
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
    for matrix, other, first in zip(ours.parameters(), theirs.parameters(), start, strict=True):
        assert (matrix - other).norm() < 0.03 * (matrix - first).norm()


def test_weights_without_a_gradient_do_not_change():
    table, layers = nn.Parameter(torch.ones(3, 2)), [nn.Linear(4, 4, bias=False) for _ in range(2)]
    before = layers[1].weight.detach().clone()
    layers[0].weight.grad = torch.ones(4, 4)
    RowAdagrad([table], lr=0.1).step()
    Muon([layer.weight for layer in layers], lr=0.1, weight_decay=0.1).step()
    assert torch.equal(table, torch.ones(3, 2))
    assert torch.equal(layers[1].weight, before)


def test_a_gradient_with_repeated_rows_is_summed_and_one_without_is_kept():
    table = torch.nn.Parameter(torch.zeros(5, 2))
    for rows in ([3, 1, 3], [0, 2, 4]):
        values = torch.arange(6.0).view(3, 2)
        table.grad = torch.sparse_coo_tensor(
            torch.tensor([rows]), values, (5, 2), check_invariants=True
        )
        dense = table.grad.to_dense()
        (sums,) = gradients_of(torch.nn.ParameterList([table]))
        assert table.grad.is_coalesced()
        assert torch.equal(table.grad.to_dense(), dense)
        assert torch.equal(sums, dense[sorted(set(rows))])
