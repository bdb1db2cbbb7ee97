"""The model of the annotated labml experiment, with the interface of Folio's own."""

from typing import Any

from labml_nn.transformers import Encoder, Generator, mha
from torch import Tensor, nn

from model.documents import places_in, same_document

# labml 0.5 removed it, but labml_nn's attention still calls it
if not hasattr(mha.tracker, "debug"):
    mha.tracker.debug = lambda *_: None


class LabmlTransformer(nn.Module):
    """labml_nn's encoder, embedding and generator, combined as in its `TransformerMLM`.

    labml_nn is sequence-first; only this adapter transposes. The generator runs at the masked
    positions only, which does not change their logits.
    """

    max_seq_len = 5_000  # labml_nn encodes so many positions

    def __init__(self, *, encoder: Encoder, src_embed: nn.Module, generator: Generator):
        super().__init__()
        self.encoder = encoder
        self.src_embed: Any = src_embed
        self.generator = generator

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits `[*positions.shape, n_tokens]` for token ids `inputs` `[batch, seq_len]`, as in
        MaskedLanguageModel."""
        tokens = inputs.t()
        if attention_mask is None:
            x = self.encoder(self.src_embed(tokens), None)  # [seq_len, batch, d_model]
        else:
            is_same = same_document(attention_mask, attention_mask)
            places = places_in(is_same)[:, 0].t()
            # as src_embed, but each document has positions of its own
            vectors = self.src_embed.linear(tokens) * self.src_embed.d_model**0.5
            embedded = vectors + self.src_embed.positional_encodings[places, 0]
            # [seq_len, seq_len, batch]
            x = self.encoder(embedded, is_same[:, 0].movedim(0, -1))
        x = x.transpose(0, 1).flatten(0, 1)
        if positions is not None:
            x = x[positions]
        return self.generator(x)
