"""Hugging Face's models, for benchmarks: model.architecture=benchmarks/models.py:modernbert."""

import sys
from typing import Any

from torch import Tensor, nn

from configs.model import ModelConfigs

# Names in the config of BERT or of ModernBERT; each ignores the other's.
UNUSED_TOKENS = (
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "cls_token_id",
    "sep_token_id",
)
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "embedding_dropout",
    "attention_dropout",
    "mlp_dropout",
)


class HuggingFace(nn.Module):
    """`BertForMaskedLM` or `ModernBertForMaskedLM`, with its head at the requested positions only.

    All else is the default of its authors: in ModernBERT, two of three layers attend to 64
    characters on either side.
    """

    def __init__(self, c: ModelConfigs, architecture: str, attention: str = "sdpa"):
        """`attention` is one of transformers' implementations."""
        super().__init__()
        # transformers imports torchvision if it is installed; the one that labml_nn installs needs
        # torch's CUDA build.
        sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
        from transformers import AutoConfig, AutoModelForMaskedLM

        config = AutoConfig.for_model(
            architecture,
            vocab_size=c.n_tokens,
            hidden_size=c.d_model,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            intermediate_size=c.d_ff,
            **dict.fromkeys(UNUSED_TOKENS),
            **dict.fromkeys(DROPOUTS, c.dropout),
        )
        self.model: Any = AutoModelForMaskedLM.from_config(
            config, attn_implementation=attention
        )

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits `[*positions.shape, n_tokens]` for token ids `inputs` `[batch, seq_len]`, as
        MaskedLanguageModel gives."""
        # [batch * seq_len, d_model]
        vectors = self.encoder(inputs, attention_mask).flatten(0, 1)
        return self.predict(vectors if positions is None else vectors[positions])

    def predict(self, vectors: Tensor) -> Tensor:
        """Logits `[..., n_tokens]` of the encoder's vectors `[..., d_model]`."""
        if hasattr(self.model, "cls"):
            return self.model.cls(vectors)
        return self.model.decoder(self.model.head(vectors))

    @property
    def encoder(self) -> "Encoder":
        return Encoder(self.model.base_model)


class Encoder:
    """The encoder of ModernBERT by the names of Folio's, for classifiers to read; that of BERT
    cannot be read."""

    def __init__(self, base: Any):
        self.base = base
        self.embedding = base.get_input_embeddings()
        self.layers = getattr(base, "layers", None)
        self.d_model = base.config.hidden_size

    def at_tokens(self, x: Tensor, inputs: Tensor, mask: Tensor | None) -> Tensor:
        return x

    def __call__(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Vectors `[batch, seq_len, d_model]`."""
        return self.base(
            input_ids=inputs, attention_mask=attention_mask
        ).last_hidden_state


def bert(c: ModelConfigs) -> nn.Module:
    return HuggingFace(c, "bert")


def modernbert(c: ModelConfigs) -> nn.Module:
    return HuggingFace(c, "modernbert")


def modernbert_with_flex_attention(c: ModelConfigs) -> nn.Module:
    """Its sliding windows as blocks, which skip what they do not see; on CUDA only."""
    return HuggingFace(c, "modernbert", "flex_attention")
