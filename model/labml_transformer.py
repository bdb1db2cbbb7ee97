"""The model of the annotated labml experiment, with the interface of Folio's own."""

from labml_nn.transformers import Encoder, Generator, mha
from torch import Tensor, nn

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
        self.src_embed = src_embed
        self.generator = generator

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits `[*positions.shape, n_tokens]` for token ids `inputs` `[batch, seq_len]`, as in
        MaskedLanguageModel."""
        mask = (
            None if attention_mask is None else attention_mask.t()[None]
        )  # [1, seq_len, batch]
        x = self.encoder(self.src_embed(inputs.t()), mask)  # [seq_len, batch, d_model]
        x = x.transpose(0, 1).flatten(0, 1)
        if positions is not None:
            x = x[positions]
        return self.generator(x)
