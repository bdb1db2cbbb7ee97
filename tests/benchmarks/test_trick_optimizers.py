import copy

import torch
from torch import nn

from benchmarks.trick_optimizers import TABLE_DECAY, Averaging, DecayedRows, _cautious
from training.muon import Muon
from training.optimizers import RowAdagrad


def matrix(seed: int = 0) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    weight = nn.Parameter(torch.randn(6, 4, generator=generator))
    weight.grad = torch.randn(6, 4, generator=generator)
    return weight


def test_cautious_decay_only_pulls_where_the_update_does_too():
    for new in (Muon, torch.optim.AdamW):
        plain, ours = matrix(), matrix()
        before = plain.detach().clone()
        new([plain], lr=0.1, weight_decay=0.0).step()
        optimizer = new([ours], lr=0.1, weight_decay=0.5)
        optimizer.step = _cautious(optimizer)
        optimizer.step()
        for old, undecayed, decayed in zip(before.flatten(), plain.flatten(), ours.flatten(), strict=True):
            agrees = abs(undecayed) < abs(old) or undecayed * old < 0
            assert torch.isclose(decayed, undecayed - 0.1 * 0.5 * old * agrees)


def test_rows_decay_only_when_they_are_looked_up():
    ours, theirs = (nn.EmbeddingBag(5, 3, mode="sum", sparse=True) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    before = ours.weight.detach().clone()
    for bag, new in ((ours, DecayedRows), (theirs, RowAdagrad)):
        bag(torch.tensor([[1, 3]])).sum().backward()
        bag.weight.grad = bag.weight.grad.coalesce()
        new([bag.weight], lr=0.1).step()
    decay = torch.zeros(5, 1)
    decay[[1, 3]] = 0.1 * TABLE_DECAY
    assert torch.allclose(ours.weight, theirs.weight - decay * before)


def test_averaged_weights_are_evaluated_and_the_last_ones_are_trained():
    model = nn.Linear(2, 2)
    averaging = Averaging(model)
    seen = []
    for step in range(11):
        model.weight.data.fill_(step)
        averaging.step()
        seen.append(model.weight.detach().clone())
    trained = copy.deepcopy(model.state_dict())
    model.eval()
    model.eval()
    assert torch.allclose(model.weight, torch.full((2, 2), 5.0))  # the mean of steps 0 and 10
    model.train()
    assert torch.equal(model.weight, trained["weight"])
