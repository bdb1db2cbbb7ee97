import pytest
import torch

import benchmarks.models  # noqa: F401
from benchmarks import tricks
from benchmarks.trick_neighbors import Convolution, TokenShift
from configs.experiment import configs_of
from configs.model import check_contract

KEYS = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 3, "model.d_ff": 48, "model.ngrams": 4}
INPUTS = torch.randint(28, (3, 128), generator=torch.Generator().manual_seed(1))
POSITIONS = torch.tensor([[5, 9, 127], [0, 1, 2], [60, 61, 90]])
POSITIONS = (POSITIONS + 128 * torch.arange(3)[:, None]).flatten()


def built(architecture: str, **keys: object) -> torch.nn.Module:
    """A model whose layers compute something: their outputs begin at zero."""
    configs = configs_of(KEYS | {"model.architecture": architecture, "model.ngram_rows": 500} | keys)
    configs.model.n_tokens, configs.model.n_segments = 30, 0
    torch.manual_seed(1)
    model = configs.model.architecture
    generator = torch.Generator().manual_seed(2)
    for name, parameter in model.named_parameters():
        if name.endswith("output.weight"):
            parameter.data = torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5
    return model


ARCHITECTURES = {row.keys["model.architecture"] for row in tricks.tricks().values() if "model.architecture" in row.keys}


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES - {"counting_prior"}))
def test_every_model_trains_all_its_weights(architecture):
    model = built(architecture)
    check_contract(model, 30, torch.device("cpu"))
    positions = POSITIONS.view(3, 3) if model.takes_positions_per_window else POSITIONS
    model(INPUTS, positions).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    assert model(INPUTS).shape == (3 * 128, 30)


SAME_AT_FIRST = ["biases", "growing_depth", "queries_everywhere", "residual_scalars", "smear"]


@pytest.mark.parametrize("architecture", SAME_AT_FIRST)
def test_new_weights_change_nothing_at_first(architecture):
    modern = built("modern")
    for training in (True, False):
        model = built(architecture).train(training)
        assert torch.allclose(model(INPUTS, POSITIONS), modern(INPUTS, POSITIONS), atol=1e-5)


def test_a_growing_model_is_shallow_on_short_windows_and_its_growth_changes_nothing():
    model, short = built("growing_depth").train(), INPUTS[:, :64]
    before = model(short)
    for parameter in model.encoder.layers[1].parameters():
        parameter.data.normal_()
    assert torch.equal(model(short), before)
    assert not torch.allclose(model.eval()(short), before)
    model.train()(short).square().sum().backward()
    assert all(parameter.grad is None for parameter in model.encoder.layers[1].parameters())
    for output in (model.encoder.layers[1].layer.attention.output, model.encoder.layers[1].layer.feed_forward.output):
        output.weight.data.zero_()
    assert torch.equal(model.eval()(short), before)


def test_token_shift_takes_a_quarter_of_the_channels_from_each_neighbor():
    x = torch.tensor([[1.0, 2.0, 3.0]]).unsqueeze(-1).expand(1, 3, 4)
    assert TokenShift()(x).tolist() == [[[0, 2, 1, 1], [1, 3, 2, 2], [2, 0, 3, 3]]]


def test_a_convolution_begins_as_the_identity_and_reaches_two_characters_far():
    convolution, x = Convolution(4), torch.randn(2, 9, 4)
    assert torch.equal(convolution(x), x)
    convolution.weight.data.fill_(1.0)
    assert torch.allclose(convolution(x)[:, 4], x[:, 2:7].sum(1))
    assert torch.allclose(convolution(x)[:, 0], x[:, :3].sum(1))
