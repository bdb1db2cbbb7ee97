import torch

from model import MaskedLanguageModel, ModernEncoder
from training import optimizers


def model() -> MaskedLanguageModel:
    return MaskedLanguageModel(ModernEncoder(n_tokens=30, d_model=16, n_layers=2, n_heads=2, d_ff=16))


def test_muon_gets_the_layers_matrices_and_adamw_every_other_parameter_once():
    net = model()
    adamw, muon = optimizers.muon(net, learning_rate=1e-3, muon_learning_rate=0.02, muon_momentum=0.9, weight_decay=0.1)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    by_muon = [names[id(p)] for group in muon.param_groups for p in group["params"]]
    by_adamw = [names[id(p)] for group in adamw.param_groups for p in group["params"]]
    assert sorted(by_muon + by_adamw) == sorted(names.values())
    assert muon.param_groups[0]["momentum"] == 0.9
    assert len(by_muon) == 2 * 4
    assert all(name.startswith("encoder.layers.") and name.endswith("weight") for name in by_muon)


def test_norms_and_biases_do_not_decay():
    for group in optimizers.adamw(model(), learning_rate=1e-3, weight_decay=0.1)[0].param_groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)


def test_the_learning_rate_is_a_share_of_each_optimizers_peak():
    both = optimizers.muon(
        model(), learning_rate=1e-3, muon_learning_rate=0.02, muon_momentum=0.95, weight_decay=0.0
    )
    for share in (0.5, 0.1, 1.0):
        optimizers.set_learning_rate(both, share)
        assert [o.param_groups[0]["lr"] for o in both] == [1e-3 * share, 0.02 * share]
    assert optimizers.learning_rate_of(both) == 1e-3


def test_noam_is_labml_nns_with_2000_steps_of_warmup():
    net = model()
    (noam,) = optimizers.noam(net, learning_rate=1.0, d_model=16)
    for step in range(1, 4):
        net(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
        noam.step()
        assert optimizers.learning_rate_of([noam]) == 16**-0.5 * step * 2_000**-1.5
