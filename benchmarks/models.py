"""Models that only benchmarks train: those between the annotated experiment's and `modern`, each with one change more,
and Hugging Face's BERT.

python -m benchmarks.models [key=value ...] is experiment.py with these as further values of model.architecture.
"""

import copy
import math
import sys
from dataclasses import dataclass

import torch
from labml.configs import option
from torch import nn
from torch.nn import functional as F

from benchmarks.peers import bert_for_masked_lm
from configs.model import ModelConfigs
from model.modern import rotary_table, rotate


@dataclass(frozen=True)
class Changes:
    """What is no longer as in the annotated experiment; with none of them, the function is that of labml_nn's model."""

    rotary: bool = False  # for sinusoids that are added to the embedding
    geglu: bool = False  # for a feed-forward with ReLU
    initialised: bool = (
        False  # 1/sqrt(inputs), embedding 0.02, outputs' weights zero; for PyTorch's own, layers all alike
    )


class Attention(nn.Module):
    """Multi-head attention with biases, its products fused: labml_nn's function."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, changes: Changes):
        super().__init__()
        self.n_heads, self.dropout, self.rotary = n_heads, dropout, changes.rotary
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq_len, d_model = x.shape
        query, key, value = (
            matrix(x).view(batch, seq_len, self.n_heads, -1).transpose(1, 2)
            for matrix in (self.query, self.key, self.value)
        )
        if self.rotary:
            cos, sin = rotary_table(seq_len, d_model // self.n_heads, x.device)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.output(mixed.transpose(1, 2).reshape(batch, seq_len, d_model))


class FeedForward(nn.Module):
    """With ReLU, or gated by GELU."""

    def __init__(self, d_model: int, d_ff: int, dropout: float, changes: Changes):
        super().__init__()
        self.hidden, self.output = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.gate = nn.Linear(d_model, d_ff) if changes.geglu else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden(x)
        return self.output(self.dropout(F.relu(hidden) if self.gate is None else F.gelu(hidden) * self.gate(x)))


class Layer(nn.Module):
    """Attention, then the feed-forward, each on the normed stream and added to it: labml_nn's layers do so too."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, changes: Changes):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads, dropout, changes)
        self.feed_forward = FeedForward(d_model, d_ff, dropout, changes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = ((self.attention_norm, self.attention), (self.feed_forward_norm, self.feed_forward))
        for norm, part in parts:
            x = x + self.dropout(part(norm(x)))
        return x


class Between(nn.Module):
    """Logits `[n_masked, n_tokens]` for `inputs` `[batch, seq_len]`, as `MaskedLanguageModel`."""

    def __init__(self, c: ModelConfigs, changes: Changes):
        super().__init__()
        self.rotary = changes.rotary
        self.embedding = nn.Embedding(c.n_tokens, c.d_model)
        layer = Layer(c.d_model, c.n_heads, c.d_ff, c.dropout, changes)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(c.n_layers))  # all alike, as in labml_nn
        self.norm = nn.LayerNorm(c.d_model)
        self.generator = nn.Linear(c.d_model, c.n_tokens)
        if changes.initialised:
            self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith("output.weight"):
                nn.init.zeros_(parameter)
            elif parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02 if name == "embedding.weight" else parameter.shape[1] ** -0.5)

    def forward(self, inputs: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embedding(inputs) * math.sqrt(self.embedding.embedding_dim)
        if not self.rotary:
            x = x + sinusoids(inputs.shape[1], self.embedding.embedding_dim, inputs.device)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x).flatten(0, 1)
        return self.generator(x if positions is None else x[positions])


def sinusoids(seq_len: int, d_model: int, device: torch.device) -> torch.Tensor:
    """`[seq_len, d_model]`: sines and cosines by turns, of wavelengths from 2 pi to 20,000 pi (Vaswani et al. 2017)."""
    frequencies = 10_000.0 ** -(torch.arange(0, d_model, 2, device=device, dtype=torch.float32) / d_model)
    angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), frequencies)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class HuggingFaceBert(nn.Module):
    """`BertForMaskedLM` as it comes: it computes the logits of all offsets, and returns those that are asked for."""

    def __init__(self, c: ModelConfigs):
        super().__init__()
        self.bert = bert_for_masked_lm(c.n_tokens, c.d_model, c.n_layers, c.n_heads, c.d_ff, c.dropout)

    def forward(self, inputs: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        logits = self.bert(input_ids=inputs).logits.flatten(0, 1)
        return logits if positions is None else logits[positions]


MODELS = {
    "fused": Changes(),
    "rotary": Changes(rotary=True),
    "geglu": Changes(rotary=True, geglu=True),
    "initialised": Changes(rotary=True, geglu=True, initialised=True),
}


def _register(name: str, changes: Changes) -> None:
    def model(c: ModelConfigs) -> nn.Module:
        return Between(c, changes)

    option(ModelConfigs.architecture, name)(model)


for _name, _changes in MODELS.items():
    _register(_name, _changes)


@option(ModelConfigs.architecture)
def hugging_face(c: ModelConfigs) -> nn.Module:
    return HuggingFaceBert(c)


if __name__ == "__main__":
    from experiment import main  # only now: it takes the names of all models there are

    sys.exit(main(sys.argv[1:]))
