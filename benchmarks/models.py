"""Hugging Face's models as values of model.architecture, for benchmarks.

python -m benchmarks.models [key=value ...] is experiment.py with these architectures.
"""

import sys
from typing import Any

import torch
from torch import nn

from benchmarks.peers import masked_lm
from configs.model import ModelConfigs, option


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


if __name__ == "__main__":
    from experiment import main  # imported last, because it reads the names of all registered models

    sys.exit(main(sys.argv[1:]))
