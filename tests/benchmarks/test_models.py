import torch

from benchmarks.models import MODELS, Between
from configs.experiment import configs_of

KEYS = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2, "model.d_ff": 48}
INPUTS = torch.randint(30, (3, 20), generator=torch.Generator().manual_seed(1))


def configured(architecture: str):
    configs = configs_of(KEYS | {"model.architecture": architecture})
    configs.model.n_tokens = 30
    return configs.model


def test_the_first_rung_computes_what_labml_nns_model_does():
    """Given its weights; so what the rung changes is the speed alone."""
    theirs = configured("labml_nn").architecture.eval()
    ours = Between(configured("labml_nn"), MODELS["fused"]).eval()
    for (name, parameter), (_, other) in zip(
        sorted((our_name(name), p) for name, p in theirs.named_parameters()),
        sorted(ours.named_parameters()),
        strict=True,
    ):
        assert parameter.shape == other.shape, name
        other.data.copy_(parameter.data)
    assert torch.allclose(ours(INPUTS), theirs(INPUTS), atol=1e-5)
    assert torch.allclose(ours(INPUTS, torch.tensor([5, 44])), theirs(INPUTS)[[5, 44]], atol=1e-5)


def our_name(name: str) -> str:
    for theirs, ours in (
        ("encoder.", ""),
        ("src_embed.linear", "embedding"),
        ("generator.projection", "generator"),
        ("self_attn.output", "attention.output"),
        ("norm_self_attn", "attention_norm"),
        ("norm_ff", "feed_forward_norm"),
        ("self_attn.", "attention."),
        (".linear.", "."),
        ("layer1", "hidden"),
        ("layer2", "output"),
    ):
        name = name.replace(theirs, ours)
    return name


def test_a_model_whose_outputs_begin_at_zero_sees_nothing_but_the_token():
    """At first every layer adds the same everywhere, with rotary positions as well."""
    logits = configured("initialised").architecture.eval()(INPUTS)
    same = (INPUTS.flatten() == INPUTS[0, 0]).nonzero().flatten()
    assert torch.allclose(logits[same], logits[same[0]].expand(len(same), -1), atol=1e-6)
