"""Folio's models for Hugging Face's transformers: ModernBERT with n-gram embeddings, and with
Folio's classifiers.

`export.py` builds the model with this file and copies it, with `ngrams.py`, beside the weights.
`trust_remote_code=True` loads both files.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertModel,
    ModernBertPreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.modernbert.modeling_modernbert import (
    ModernBertEmbeddings,
    ModernBertPredictionHead,
)

# relative, because transformers looks for it beside this file
from .ngrams import NgramEmbedding


class FolioConfig(ModernBertConfig):
    """ModernBERT's config with the n-grams' offsets, and the rows and parts of their table."""

    model_type = "folio"

    ngrams: list[list[int]] | None = None
    ngram_rows: int = 1
    ngram_parts: int = 1


class FolioEmbeddings(ModernBertEmbeddings):
    """ModernBERT's embeddings with n-grams added before the norm."""

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        self.ngrams = NgramEmbedding(
            n_tokens=config.vocab_size - 1,  # without the added [UNK]
            d_model=config.hidden_size,
            ngrams=[tuple(ngram) for ngram in config.ngrams or []],
            n_rows=config.ngram_rows,
            n_parts=config.ngram_parts,
        )

    def forward(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Vectors `[batch, seq_len, hidden_size]` for `input_ids` `[batch, seq_len]`.

        `[PAD]` counts as outside of the text, and the last token, an added `[UNK]`, as `[MASK]`.
        Raises ValueError for `inputs_embeds`.
        """
        if input_ids is None:
            raise ValueError("n-gram embeddings need input_ids, not inputs_embeds")
        config: Any = self.config
        added_token = config.vocab_size - 1
        symbols = input_ids.masked_fill(input_ids == added_token, config.mask_token_id)
        symbols = symbols.masked_fill(
            input_ids == config.pad_token_id, self.ngrams.border
        )
        return self.drop(
            self.norm(self.tok_embeddings(input_ids) + self.ngrams(symbols))
        )


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


class FolioForTokenClassification(ModernBertPreTrainedModel):
    """A linear layer on the vectors, the surprise and the log-probabilities:
    `trained.classifier.Classifier`."""

    config_class = FolioConfig
    _tied_weights_keys = ModernBertForMaskedLM._tied_weights_keys
    n_vectors = 1  # per text or token
    largest_alphabet = 512  # whose probabilities are read

    def __init__(self, config: FolioConfig):
        super().__init__(config)
        self.model = FolioModel(config) if config.ngrams else ModernBertModel(config)
        self.head = ModernBertPredictionHead(config)
        self.decoder = nn.Linear(
            config.hidden_size, config.vocab_size, bias=config.decoder_bias
        )
        n_tokens = config.vocab_size - 1  # without the added [UNK]
        self.reads_surprise = n_tokens <= self.largest_alphabet
        self.reads_expected = self.reads_surprise and self.n_vectors == 1
        n_features = (config.num_hidden_layers + 1) * config.hidden_size
        n_features += self.reads_surprise + 2 * n_tokens * self.reads_expected
        self.output = nn.Linear(self.n_vectors * n_features, len(config.id2label or {}))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """Scores `[batch, seq_len, num_labels]`; with `labels`, their cross-entropy too."""
        states = self.model(
            input_ids, attention_mask=attention_mask, output_hidden_states=True
        )
        inputs = states.hidden_states[: self.config.num_hidden_layers]
        last = states.last_hidden_state
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        x = torch.cat([*inputs, last], -1)
        if self.reads_surprise:
            added_token = self.config.vocab_size - 1
            symbols = input_ids.masked_fill(
                input_ids == added_token, self.config.mask_token_id
            )
            logits = self.decoder(self.head(last))[..., :-1]  # without added_token
            expected = logits.log_softmax(-1)
            x = torch.cat([x, -expected.gather(-1, symbols.unsqueeze(-1))], -1)
        if self.reads_expected:
            visible = expected * mask.unsqueeze(-1)
            of_next = F.pad(visible[:, 1:], (0, 0, 0, 1))
            x = torch.cat([x, expected, of_next], -1)

        scores = self.output(self.read(x, mask))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(scores.flatten(0, -2), labels.flatten())

        return SequenceClassifierOutput(loss=loss, logits=scores)

    def read(self, x: Tensor, mask: Tensor) -> Tensor:
        return x


class FolioForSequenceClassification(FolioForTokenClassification):
    """The same on the mean and the maximum over the tokens of a text, and its first one: `[batch,
    num_labels]`."""

    n_vectors = 3

    def read(self, x: Tensor, mask: Tensor) -> Tensor:
        is_text = mask.bool().unsqueeze(-1)
        mean = (x * is_text).sum(1) / is_text.sum(1)
        # padding may be on the left
        first = (x * (is_text & (is_text.cumsum(1) == 1))).sum(1)
        return torch.cat([mean, x.masked_fill(~is_text, -torch.inf).amax(1), first], -1)


AUTO_MAP: dict[str, Any] = {
    "AutoConfig": "modeling_folio.FolioConfig",
    "AutoModel": "modeling_folio.FolioModel",
    "AutoModelForMaskedLM": "modeling_folio.FolioForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_folio.FolioForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_folio.FolioForTokenClassification",
}
