import torch
from torch import nn

from configs.experiment import configs_of
from model import MaskedLanguageModel, ModernEncoder
from tests.data.masking.helpers import generator

INPUTS = torch.randint(30, (3, 20), generator=generator(1))


def built(architecture, keys):
    """The model of an architecture by its name, for 30 tokens."""
    torch.manual_seed(0)
    configs = configs_of({"model.architecture": architecture, **keys})
    configs.model.n_tokens = 30
    return configs.model.architecture.eval()


def small_model(**sizes):
    """A model whose output projections and tables are not zero, as if it had been trained."""
    torch.manual_seed(0)
    defaults = {"n_tokens": 30, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 16}
    encoder = ModernEncoder(**defaults | sizes)
    model = MaskedLanguageModel(encoder)

    for name, parameter in model.named_parameters():
        if name.endswith(("output.weight", "table.weight")):
            nn.init.normal_(parameter, std=0.2)

    return model


def model_of(logits_of):
    """A model whose logits are a function of the inputs and the positions."""
    model = nn.Module()
    model.forward = logits_of
    return model
