"""Which parameters each optimizer trains, and what its step computes."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from configs.training import muon
from model.ngrams import NGRAMS, NgramEmbedding
from tests.conftest import configs_for
from tests.model.conftest import small_model
from training import optimizers
from training.compilation import compile_tables
from training.muon import STEPS, A, B, C, Muon, orthogonal
from training.optimizers import RowAdagrad, gradients_of

RATES = {"learning_rate": 1e-3, "table_learning_rate": 0.05, "weight_decay": 0.1}
IDS = torch.zeros(1, 4, dtype=torch.int64)


def with_table():
    """A model, and its table."""
    ngrams = NgramEmbedding(n_tokens=30, d_model=16, ngrams=NGRAMS, n_rows=50)
    return small_model(ngrams=ngrams), ngrams.table.weight


def muon_of(model):
    # the width whose rate the key has
    root = SimpleNamespace(model=SimpleNamespace(d_model=128))
    rates = {**RATES, "muon_learning_rate": 0.02, "muon_momentum": 0.9}
    return muon(SimpleNamespace(network=model, root=lambda: root, **rates))


def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def ids_of(optimizer):
    return {id(parameter) for parameter in parameters_of(optimizer)}


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("d_model", "rate"), [(32, 8e-3), (128, 2e-3)])
def test_the_rate_of_adamw_is_inverse_to_the_width_and_that_of_muon_is_not(
    corpus_file, d_model, rate
):
    adamw, of_matrices = configs_for(
        corpus_file, model__d_model=d_model
    ).training.optimizer
    assert adamw.param_groups[0]["lr"] == rate
    assert of_matrices.param_groups[0]["lr"] == 0.02


def test_muon_gets_the_matrices_of_the_layers_and_adamw_all_other_parameters():
    model = small_model()
    adamw, of_matrices = muon_of(model)

    assert of_matrices.param_groups[0]["momentum"] == 0.9

    matrices = {id(p) for p in model.encoder.layers.parameters() if p.ndim == 2}
    assert ids_of(of_matrices) == matrices
    assert ids_of(adamw) == {id(p) for p in model.parameters()} - matrices


@pytest.mark.parametrize("build", [muon_of, partial(optimizers.adamw, **RATES)])
def test_tables_get_sparse_gradients_and_an_optimizer_of_their_own(build):
    """And norms and biases have no weight decay."""
    model, table = with_table()
    *others, by_row = build(model)

    assert parameters_of(by_row) == [table]
    assert all(id(table) not in ids_of(optimizer) for optimizer in others)

    for group in others[0].param_groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)

    model(IDS).sum().backward()
    assert table.grad.is_sparse


def test_an_optimizer_of_the_users_own_can_train_the_tables():
    """PyTorch's optimizers for dense gradients refuse sparse ones."""
    model, table = with_table()
    before = table.detach().clone()
    model(IDS).square().sum().backward()
    torch.optim.NAdam(model.parameters()).step()

    assert not torch.equal(table, before)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_row_adagrad_follows_its_formula_and_changes_no_other_row(is_sparse):
    expected = random(9, 4)
    table = nn.Parameter(expected.clone())
    optimizer = RowAdagrad([table], lr=0.1)
    sums = torch.zeros(9)

    for seed, rows in enumerate(([0, 5, 7], [5], [2, 5])):
        gradient = torch.zeros(9, 4)
        gradient[rows] = random(len(rows), 4, seed=seed)
        table.grad = gradient.to_sparse(1).coalesce() if is_sparse else gradient.clone()
        optimizer.step()

        sums += gradient.square().mean(1)
        expected[rows] -= 0.1 * gradient[rows] / sums[rows, None].sqrt()

    assert torch.allclose(table, expected, atol=1e-6)

    others = [1, 3, 4, 6, 8]
    assert torch.equal(table[others], expected[others])


def test_a_compiled_update_of_a_table_is_that_of_an_eager_one():
    """With learning rates that change, as numbers and as tensors; a step that is not finite changes
    nothing."""
    eager, compiled = (RowAdagrad([nn.Parameter(random(9, 4))], lr=0.1) for _ in "12")
    compile_tables([compiled])
    for seed, lr in enumerate((0.1, 0.2, 0.3, torch.tensor(0.4))):
        for optimizer in (eager, compiled):
            (group,) = optimizer.param_groups
            group["lr"] = lr
            optimizer.found_inf = torch.tensor(float(seed == 2))
            group["params"][0].grad = random(9, 4, seed=seed)
            if seed == 2:
                group["params"][0].grad[3] = torch.nan
            with torch.compiler.set_stance("fail_on_recompile"):
                optimizer.step()

    assert_close(compiled.state_dict()["state"], eager.state_dict()["state"])
    assert_close(*(each.param_groups[0]["params"] for each in (compiled, eager)))
    assert eager.param_groups[0]["params"][0].isfinite().all()


@pytest.mark.parametrize("share", [0.5, 0.1, 1.0])
def test_the_learning_rate_is_a_share_of_the_peak_of_each_optimizer(share):
    all_three = muon_of(with_table()[0])
    optimizers.set_learning_rate(all_three, 0.7)  # not the peak of what follows
    optimizers.set_learning_rate(all_three, share)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in all_three]

    assert rates == [1e-3 * share, 0.02 * share, 0.05 * share]
    assert optimizers.learning_rate_of(all_three) == rates[0]


def test_noam_is_labml_nns_with_2000_steps_of_warmup(corpus_file):
    keys = {
        "training__optimizer": "noam",
        "training__learning_rate": 1.0,
        "model__d_model": 16,
    }
    configs = configs_for(corpus_file, **keys)
    (noam,) = configs.training.optimizer

    for step in range(1, 4):
        configs.network(IDS).sum().backward()
        noam.step()

        assert optimizers.learning_rate_of([noam]) == 16**-0.5 * step * 2_000**-1.5


@pytest.mark.parametrize(
    "shape", [(2, 48, 128), (2, 128, 48), (2, 48, 64), (4, 32, 32), (1, 1, 5)]
)
@pytest.mark.parametrize("smallest", [1e-1, 1e-4, 1e-8])
def test_every_shape_and_condition_gives_the_result_of_the_iteration(shape, smallest):
    """Singular values of at least a tenth come near one. The scale does not matter, and zeros stay
    zeros."""
    u, _, vt = torch.linalg.svd(random(*shape).double(), full_matrices=False)
    matrices = u * torch.logspace(0, math.log10(smallest), u.shape[2]) @ vt
    values = torch.linalg.svdvals(matrices)  # the iteration changes only these
    values = values / values.norm(dim=1, keepdim=True)

    for _ in range(STEPS):
        values = A * values + B * values**3 + C * values**5

    assert smallest < 0.1 or (values - 0.95).abs().max() < 0.3

    expected = u * values[:, None] @ vt

    for scale in (1.0, 1e-3):
        updates = orthogonal(scale * matrices.float())
        assert (updates - expected).norm() < 1e-3 * expected.norm()

    assert (orthogonal(torch.zeros(shape)) == 0).all()


@pytest.mark.parametrize("shape", [(2, 256, 256), (2, 256, 512), (2, 512, 256)])
def test_large_matrices_may_be_orthogonal_to_the_precision_of_bfloat16(
    monkeypatch, shape
):
    monkeypatch.setattr("training.muon.CPU_HAS_BFLOAT16", False)
    exact = orthogonal(random(*shape))

    assert exact.dtype == torch.float32

    monkeypatch.setattr("training.muon.CPU_HAS_BFLOAT16", True)
    rounded = orthogonal(random(*shape))

    assert rounded.dtype == torch.bfloat16
    assert (rounded - exact).norm() < 0.03 * exact.norm()


def test_the_heads_of_one_matrix_are_updated_like_matrices_of_their_own():
    """The parts are narrow, as heads are."""
    start = random(48, 24)
    whole = nn.Parameter(start.clone())
    heads = [nn.Parameter(part.clone()) for part in start.split(8)]
    together = Muon([whole], lr=0.1, weight_decay=0.1, n_parts={whole: 6})
    apart = Muon(heads, lr=0.1, weight_decay=0.1)

    for step in range(3):
        gradient = random(48, 24, seed=step)
        whole.grad = gradient
        for head, part in zip(heads, gradient.split(8), strict=True):
            head.grad = part.clone()
        together.step()
        apart.step()

    assert torch.allclose(whole, torch.cat(heads), atol=1e-6)


def test_muon_takes_the_heads_of_the_attention_apart():
    model = small_model()
    _, of_matrices = muon_of(model)
    attention = model.encoder.layers[0].attention

    n_heads = 3 * attention.n_heads  # of the queries, the keys and the values
    assert of_matrices.parts_of(attention.query_key_value.weight) == n_heads
    assert of_matrices.parts_of(attention.output.weight) == 1


@pytest.mark.parametrize("momentum", [0.9, 0.95])
def test_muon_agrees_with_pytorchs_own(momentum):
    """PyTorch's Muon computes in bfloat16, so the paths of the weights agree to the precision of
    bfloat16."""
    start = [
        0.1 * random(24, 24),
        0.1 * random(48, 24, seed=1),
        0.1 * random(24, 24, seed=2),
    ]
    paths = []

    for kind in (Muon, torch.optim.Muon):
        matrices = [nn.Parameter(matrix.clone()) for matrix in start]
        optimizer = kind(matrices, lr=0.02, weight_decay=0.1, momentum=momentum)
        for step in range(10):
            for number, matrix in enumerate(matrices):
                matrix.grad = random(*matrix.shape, seed=10 * step + number)
            optimizer.step()

        paths.append(matrices)

    for ours, theirs, first in zip(*paths, start, strict=True):
        assert (ours - theirs).norm() < 0.03 * (ours - first).norm()


def test_weights_without_a_gradient_do_not_change():
    table, idle, trained = (nn.Parameter(torch.ones(4, 4)) for _ in range(3))
    trained.grad = torch.eye(4)
    RowAdagrad([table], lr=0.1).step()
    Muon([trained, idle], lr=0.1, weight_decay=0.1).step()

    assert (table == 1).all()
    assert (idle == 1).all()
    assert (trained != 1).any()


@pytest.mark.parametrize("rows", [[3, 1, 3], [0, 2, 4]])
def test_a_gradient_with_repeated_rows_is_summed_and_one_without_is_kept(rows):
    table = nn.Parameter(torch.zeros(5, 2))
    values = torch.arange(6.0).view(3, 2)
    table.grad = torch.sparse_coo_tensor([rows], values, (5, 2), check_invariants=True)
    dense = table.grad.to_dense()
    (sums,) = gradients_of(nn.ParameterList([table]))

    assert table.grad.is_coalesced()
    assert torch.equal(table.grad.to_dense(), dense)
    assert torch.equal(sums, dense[sorted(set(rows))])
