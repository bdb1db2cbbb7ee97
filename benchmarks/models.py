"""Models that only benchmarks train: those between the annotated experiment's and `modern`, and Hugging Face's.

python -m benchmarks.models [key=value ...] is experiment.py with these as further values of model.architecture, and
with the options of the tricks on trial: see benchmarks/tricks.py.
"""

import sys
from typing import Any

import torch
from labml_nn.transformers import Encoder, Generator, MultiHeadAttention, TransformerLayer
from labml_nn.transformers.feed_forward import FeedForward
from labml_nn.transformers.models import EmbeddingsWithPositionalEncoding
from torch import nn
from torch.nn import functional as F

import benchmarks.causal_twin
import benchmarks.trick_counts
import benchmarks.trick_models
import benchmarks.trick_neighbors
import benchmarks.trick_optimizers  # noqa: F401
from benchmarks.peers import masked_lm
from configs.model import ModelConfigs, option
from model.labml_transformer import LabmlTransformer
from model.modern import rotary_table, rotate

MODELS = {  # architecture -> the changes to the annotated experiment's model
    "fused": {},
    "rotary": {"rotary": True},
    "geglu": {"rotary": True, "geglu": True},
    "initialized": {"rotary": True, "geglu": True, "initialized": True},
}


class FusedAttention(MultiHeadAttention):
    """labml_nn's attention with fused products, and with rotary positions if `rotary` is set."""

    def __init__(self, c: ModelConfigs, rotary: bool):
        super().__init__(c.n_heads, c.d_model, c.dropout)
        self.rotary = rotary

    def forward(
        self, *, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: None = None
    ) -> torch.Tensor:
        """Attention over `[seq_len, batch, d_model]`."""
        inputs = ((self.query, query), (self.key, key), (self.value, value))
        query, key, value = (part(x).permute(1, 2, 0, 3) for part, x in inputs)  # [batch, n_heads, seq_len, d_k]
        if self.rotary:
            cos, sin = rotary_table(query.shape[2], self.d_k, query.device)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        dropout = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.output(mixed.permute(2, 0, 1, 3).flatten(2))


def between(c: ModelConfigs, rotary: bool = False, geglu: bool = False, initialized: bool = False) -> LabmlTransformer:
    """The annotated experiment's model with fused attention and these changes.

    `rotary`: rotary positions instead of sinusoids added to the embedding. `geglu`: a feed-forward layer gated by GELU
    instead of ReLU. `initialized`: weights with std 1/sqrt(inputs), 0.02 in the embedding and 0 in the output of each
    layer, instead of PyTorch's own that are the same in all layers.
    """
    activation = nn.GELU() if geglu else nn.ReLU()
    feed_forward = FeedForward(c.d_model, c.d_ff, c.dropout, activation, is_gated=geglu)
    attention = FusedAttention(c, rotary)
    layer = TransformerLayer(d_model=c.d_model, self_attn=attention, feed_forward=feed_forward, dropout_prob=c.dropout)
    embedding = EmbeddingsWithPositionalEncoding(c.d_model, c.n_tokens)
    if rotary:
        embedding.positional_encodings.zero_()
    model = LabmlTransformer(
        encoder=Encoder(layer, c.n_layers), src_embed=embedding, generator=Generator(c.n_tokens, c.d_model)
    )
    for name, parameter in model.named_parameters() if initialized else ():
        if name.endswith(("output.weight", "layer2.weight")):
            nn.init.zeros_(parameter)
        elif parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.02 if name.startswith("src_embed") else parameter.shape[1] ** -0.5)
    return model


class HuggingFace(nn.Module):
    """`BertForMaskedLM` or `ModernBertForMaskedLM`, with its head at the requested positions only."""

    def __init__(self, c: ModelConfigs, architecture: str):
        super().__init__()
        self.model: Any = masked_lm(architecture, c, c.n_tokens, c.dropout)

    def forward(self, inputs: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        """Logits `[n_masked, n_tokens]` for token ids `inputs` `[batch, seq_len]`, as MaskedLanguageModel gives."""
        hidden = self.model.base_model(input_ids=inputs).last_hidden_state.flatten(0, 1)  # [batch * seq_len, d_model]
        hidden = hidden if positions is None else hidden[positions]
        return self.model.cls(hidden) if hasattr(self.model, "cls") else self.model.decoder(self.model.head(hidden))


@option(ModelConfigs.architecture)
def hugging_face_bert(c: ModelConfigs) -> nn.Module:
    return HuggingFace(c, "bert")


@option(ModelConfigs.architecture)
def hugging_face_modernbert(c: ModelConfigs) -> nn.Module:
    return HuggingFace(c, "modernbert")


def _register(name: str) -> None:
    option(ModelConfigs.architecture, name)(lambda c: between(c, **MODELS[name]))


for _name in MODELS:
    _register(_name)


if __name__ == "__main__":
    from experiment import main  # imported last, because it reads the names of all registered models

    sys.exit(main(sys.argv[1:]))
