"""A model of pairs of text, which also predicts the label of a pair (see `data.windows.pairs`)."""

from typing import Any

import torch
from torch import Tensor, nn

from model.embedding import Embedding
from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder, linear


class PairEncoder(ModernEncoder):
    """Adds the embedding of its segment to each token."""

    def __init__(self, *, d_model: int, **settings: Any):
        super().__init__(d_model=d_model, **settings)
        self.segment_embedding = Embedding(2, d_model)
        nn.init.normal_(self.segment_embedding.weight, std=0.02)

    def embedded(
        self,
        inputs: Tensor,
        attention_mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """`segments` `[batch, seq_len]` is the segment of each token, 0 by default."""
        segments = torch.zeros_like(inputs) if segments is None else segments
        return super().embedded(inputs, attention_mask) + self.segment_embedding(
            segments
        )


class PairModel(MaskedLanguageModel):
    """A second head, on `[CLS]`, predicts the label of a pair."""

    encoder: PairEncoder

    def __init__(self, encoder: PairEncoder):
        super().__init__(encoder)
        d_model = encoder.embedding.embedding_dim
        self.pair_head = nn.Sequential(
            linear(d_model, d_model), nn.Tanh(), nn.Linear(d_model, 1)
        )

    def forward_pairs(
        self,
        inputs: Tensor,
        positions: Tensor,
        segments: Tensor,
        attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits `[*positions.shape, n_tokens]` as those of `forward`, and logits `[batch]` of the
        pairs' labels.

        `inputs` `[batch, seq_len]` begin with `[CLS]`; `segments` `[batch, seq_len]` are 0 and 1.
        """
        batch, seq_len = inputs.shape
        cls_positions = torch.arange(0, batch * seq_len, seq_len, device=inputs.device)
        if positions.ndim == 2:
            cls_positions = cls_positions[:, None]
        all_positions = torch.cat([positions, cls_positions], dim=-1)
        x = self.encoder(inputs, all_positions, attention_mask, segments=segments)
        masked, cls = x.split([positions.shape[-1], cls_positions.shape[-1]], dim=-2)
        return self.predict(masked), self.pair_head(cls).flatten()
