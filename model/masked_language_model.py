"""The masked language model: an encoder, and a head that predicts the masked positions only."""

import torch
from torch import nn

from model.modern import NORM_EPS, ModernEncoder, linear


class MaskedLanguageModel(nn.Module):
    """Predicts the tokens behind the masks (Devlin et al. 2018), as ModernBERT does (Warner et al. 2024).

    The head (linear, GELU, norm) runs at the masked positions only: with 15% masked, the full head would spend
    85% of its work on logits that the loss ignores. The decoder shares the embedding's weights and has a bias.
    """

    def __init__(self, encoder: ModernEncoder):
        super().__init__()
        d_model = encoder.embedding.embedding_dim
        self.encoder = encoder
        norm = nn.LayerNorm(d_model, eps=NORM_EPS, bias=False)
        self.head = nn.Sequential(linear(d_model, d_model), nn.GELU(), norm)
        self.decoder_bias = nn.Parameter(torch.zeros(encoder.embedding.num_embeddings))

    def forward(self, inputs: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        """Logits `[n_masked, n_tokens]` for token ids `inputs` `[batch, seq_len]`.

        `positions` `[n_masked]` are places in `inputs.flatten()`; without them there is a row for every place.
        """
        x = self.encoder(inputs).flatten(0, 1)  # [batch * seq_len, d_model]
        if positions is not None:
            x = x[positions]
        return nn.functional.linear(self.head(x), self.encoder.embedding.weight, self.decoder_bias)
