"""The `modern` model with n-gram embeddings, for Hugging Face's transformers: ModernBERT with one addition.

`export.py` builds the model with this file and copies it, with `ngrams.py`, beside the weights.
`trust_remote_code=True` loads both files.
"""

from typing import Any

from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM, ModernBertForSequenceClassification, ModernBertModel
from transformers.models.modernbert.modeling_modernbert import ModernBertEmbeddings

from .ngrams import NgramEmbedding  # relative, because transformers looks for it beside this file


class FolioConfig(ModernBertConfig):
    """ModernBERT's config with the n-grams' offsets and the rows of their table."""

    model_type = "folio"

    ngrams: list[list[int]] | None = None
    ngram_rows: int = 1


class FolioEmbeddings(ModernBertEmbeddings):
    """ModernBERT's embeddings with n-grams added before the norm."""

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        ngrams = [tuple(ngram) for ngram in config.ngrams or []]
        self.ngrams = NgramEmbedding(
            n_tokens=config.unk_token_id, d_model=config.hidden_size, ngrams=ngrams, n_rows=config.ngram_rows
        )

    def forward(self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None) -> Tensor:
        """Vectors `[batch, seq_len, hidden_size]` for `input_ids` `[batch, seq_len]`.

        `[PAD]` counts as outside of the text, and `[UNK]` as `[MASK]`. Raises ValueError for `inputs_embeds`.
        """
        if input_ids is None:
            raise ValueError("n-gram embeddings need input_ids, not inputs_embeds")
        config: Any = self.config
        symbols = input_ids.masked_fill(input_ids == config.unk_token_id, config.mask_token_id)
        symbols = symbols.masked_fill(input_ids == config.pad_token_id, self.ngrams.border)
        return self.drop(self.norm(self.tok_embeddings(input_ids) + self.ngrams(symbols)))


class FolioModel(ModernBertModel):
    config_class = FolioConfig

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        self.embeddings = FolioEmbeddings(config)
        self.post_init()


class FolioForMaskedLM(ModernBertForMaskedLM):
    config_class = FolioConfig

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        self.model = FolioModel(config)
        self.post_init()


class FolioForSequenceClassification(ModernBertForSequenceClassification):
    config_class = FolioConfig

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        self.model = FolioModel(config)
        self.post_init()


AUTO_MAP: dict[str, Any] = {
    "AutoConfig": "modeling_folio.FolioConfig",
    "AutoModel": "modeling_folio.FolioModel",
    "AutoModelForMaskedLM": "modeling_folio.FolioForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_folio.FolioForSequenceClassification",
}
