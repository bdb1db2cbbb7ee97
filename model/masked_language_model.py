"""The masked language model: an encoder, and a head that predicts the masked positions only."""

import torch
from torch import Tensor, nn

from model.modern import NORM_EPS, ModernEncoder, linear


class MaskedLanguageModel(nn.Module):
    """Predicts the masked tokens (Devlin et al. 2018) with ModernBERT's head (Warner et al. 2024).

    The last attention's queries, the last feed-forward and the head (linear, GELU, norm) are computed at the masked
    positions only: elsewhere, they would not enter the loss. The decoder shares the embedding's weights and has a bias.

    If the encoder has segments, a second head on `[CLS]` predicts the label of a pair (see `data.pairs`).
    """

    takes_positions_per_window = True  # training passes positions [batch, n] if all windows have the same number

    def __init__(self, encoder: ModernEncoder):
        super().__init__()
        d_model = encoder.embedding.embedding_dim
        self.encoder = encoder
        norm = nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        self.head = nn.Sequential(linear(d_model, d_model), nn.GELU(), norm)
        self.decoder_bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))
        if encoder.segment_embedding is not None:
            self.pair_head = nn.Sequential(linear(d_model, d_model), nn.Tanh(), nn.Linear(d_model, 1))

    def forward(self, inputs: Tensor, positions: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """Logits `[n_masked, n_tokens]` for token ids `inputs` `[batch, seq_len]`.

        `positions` `[n_masked]` are indices into `inputs.flatten()`; without them, all positions are predicted. If all
        windows have the same number, listed one window after the other, `[batch, n_masked // batch]` is faster.
        `attention_mask` `[batch, seq_len]` is False at padding.
        """
        x = self.encoder(inputs, positions=positions, attention_mask=attention_mask)
        return self.predict(x.flatten(0, -2))

    def forward_pairs(self, inputs: Tensor, positions: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Logits `[n_masked, n_tokens]` as above, and logits `[batch]` of the pairs' labels.

        `inputs` `[batch, seq_len]` begin with `[CLS]`; `segments` `[batch, seq_len]` are 0 and 1.
        """
        batch, seq_len = inputs.shape
        first = torch.arange(0, batch * seq_len, seq_len, device=inputs.device)  # the positions of [CLS]
        masked, cls = self.encoder(inputs, segments, torch.cat([positions, first])).split([len(positions), batch])
        return self.predict(masked), self.pair_head(cls).squeeze(-1)

    def predict(self, x: Tensor) -> Tensor:
        """Logits `[..., n_tokens]` for the encoder's vectors `[..., d_model]`."""
        return nn.functional.linear(self.head(x), self.encoder.embedding.weight, self.decoder_bias)
