"""The masked language model: an encoder, and a head that predicts the masked positions only."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from model.modern import ModernEncoder, linear, norm


class MaskedLanguageModel(nn.Module):
    """Predicts the masked tokens (Devlin et al. 2018) with ModernBERT's head (Warner et al. 2024).

    The last attention's queries, the last feed-forward and the head (linear, GELU, norm) are
    computed at the masked positions only: elsewhere, they would not enter the loss. The decoder
    shares the embedding's weights and has a bias.
    """

    def __init__(self, encoder: ModernEncoder):
        super().__init__()
        d_model = encoder.embedding.embedding_dim
        self.encoder = encoder
        self.head = nn.Sequential(linear(d_model, d_model), nn.GELU(), norm(d_model))
        self.decoder_bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        read: Callable[[Tensor], Any] | None = None,
        **begins: Tensor,
    ) -> Any:
        """Logits `[*positions.shape, n_tokens]` for token ids `inputs` `[batch, seq_len]`.

        `positions` are indices into `inputs.flatten()`: `[n]` in any order, or `[batch, n]`, whose
        row i lies in window i, which is faster. Without them, all positions are predicted, `[batch
        * seq_len, n_tokens]`. `attention_mask` `[batch, seq_len]` is the number of each token's
        document in its window, from 1 on, and 0 at padding; or True and False. The result of `read`
        for the encoder's vectors `[*positions.shape, d_model]` takes the place of the logits.
        `begins` is for the encoder.
        """
        x = self.encoder(
            inputs, positions=positions, attention_mask=attention_mask, **begins
        )
        x = x.flatten(0, 1) if positions is None else x
        return self.predict(x) if read is None else read(x)

    def predict(self, x: Tensor) -> Tensor:
        """Logits `[..., n_tokens]` for the encoder's vectors `[..., d_model]`."""
        return nn.functional.linear(
            self.head(x), self.encoder.embedding.weight, self.decoder_bias
        )
