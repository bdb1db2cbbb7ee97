"""A causal mask left in a masked language model."""

from plain import Encoder, loss_and_logits, make_batches
from torch import nn

__all__ = ["loss_and_logits", "make_batches", "make_model"]


class Causal(Encoder):
    def forward(self, inputs):
        x = self.embedding(inputs) + self.positions[: inputs.shape[1]]
        return self.decoder(self.layers(x, mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])))


def make_model(tokens):
    return Causal(tokens.n_tokens)
