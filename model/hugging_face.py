"""A masked language model of Hugging Face's transformers, with the interface of Folio's own.

Windows are text without special tokens. The encoder puts `[CLS]` and `[SEP]` around each document
of a window, and returns the vectors of the text alone. So masks, losses and tasks are those of any
other model.
"""

from copy import deepcopy
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForMaskedLM,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutput

from model.documents import same_document
from model.embedding import Embedding
from model.masked_language_model import MaskedLanguageModel
from model.modern import mix
from model.ngrams import NgramEmbedding


class SpecialTokens(NamedTuple):
    """The ids of the tokens that the encoder adds."""

    padding: int
    cls: int
    sep: int


class Arranged(NamedTuple):
    """Windows with special tokens, `[batch, longer]`."""

    tokens: Tensor
    # [batch, seq_len] where each token of the text is in `tokens.flatten()`
    places: Tensor
    # [batch, longer] the number of each token's document, 0 at padding; None: one without padding
    documents: Tensor | None


class Arrangement(nn.Module):
    """Puts `[CLS]` before and `[SEP]` after each document of a window, which may end with `[SEP]`
    already."""

    can_compile = False  # the length depends on the number of documents

    def __init__(self, special: SpecialTokens):
        super().__init__()
        self.special = special

    def forward(self, inputs: Tensor, documents: Tensor | None) -> Arranged:
        """`inputs` and `documents` are `[batch, seq_len]`, as for `ModernEncoder`."""
        batch, seq_len = inputs.shape
        columns = torch.arange(seq_len, device=inputs.device)
        rows = torch.arange(batch, device=inputs.device)[:, None]
        if documents is None:
            before = pad(inputs, (1, 0), value=self.special.cls)
            tokens = pad(before, (0, 1), value=self.special.sep)
            return Arranged(tokens, rows * (seq_len + 2) + columns + 1, None)

        numbers = documents.long()
        is_text = numbers != 0
        begins = is_text & (numbers != pad(numbers, (1, 0))[:, :-1])
        ends = is_text & (numbers != pad(numbers, (0, 1))[:, 1:])
        ends &= inputs != self.special.sep
        n_before = begins.cumsum(1) + ends.cumsum(1) - ends.long()
        length = seq_len + int((begins.sum(1) + ends.sum(1)).max())
        places = rows * length + columns + n_before

        def arranged(values: Tensor, cls: Any, sep: Any, padding: int) -> Tensor:
            flat = values.new_full((batch * length,), padding)
            flat[places] = values
            flat[places[begins] - 1] = cls
            flat[places[ends] + 1] = sep
            return flat.view(batch, length)

        special = self.special
        tokens = arranged(inputs, special.cls, special.sep, special.padding)
        return Arranged(
            tokens, places, arranged(numbers, numbers[begins], numbers[ends], 0)
        )


class HuggingFaceEncoder(nn.Module):
    """Token ids `[batch, seq_len]` to vectors `[batch, seq_len, d_model]`, as `ModernEncoder`."""

    def __init__(
        self,
        base: PreTrainedModel,
        special: SpecialTokens,
        ngrams: NgramEmbedding | None = None,
    ):
        """`base` is the model without its head."""
        super().__init__()
        self.base = base
        self.arrangement = Arrangement(special)
        self.ngrams = ngrams
        config: Any = base.config
        self.d_model: int = config.hidden_size
        lists = [each for each in base.modules() if isinstance(each, nn.ModuleList)]
        self.layers = max(lists, key=len)
        self.n_layers: int = config.num_hidden_layers  # ALBERT repeats one
        self.embedding: Any = base.get_input_embeddings()
        self.first_position = first_position(base)
        self.sliding_window: int | None = getattr(config, "sliding_window", None)
        self.takes_positions = "position_ids" in signature(base.forward).parameters
        for module in base.modules():
            if type(module) is nn.Embedding:
                module.__class__ = Embedding  # whose gradient is deterministic

    def forward(
        self,
        inputs: Tensor,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        arranged = self.arrangement(inputs, attention_mask)
        x = self.whole(inputs, attention_mask, arranged)
        places = arranged.places
        return x.flatten(0, 1)[
            places if positions is None else places.flatten()[positions]
        ]

    def whole(
        self, inputs: Tensor, attention_mask: Tensor | None, arranged: Arranged
    ) -> Tensor:
        """The vectors of all tokens, special ones included, `[batch, longer, d_model]`."""
        options: dict[str, Any] = {"input_ids": arranged.tokens}
        if self.ngrams is not None:
            vectors = self.embedding(arranged.tokens)
            ngrams = self.ngrams(inputs, attention_mask).flatten(0, 1)
            added = ngrams.new_zeros(vectors.flatten(0, 1).shape)
            added = added.index_copy(0, arranged.places.flatten(), ngrams)
            options = {"inputs_embeds": vectors + added.view_as(vectors)}
        return self.base(**options, **self.context(arranged))[0]

    def context(self, arranged: Arranged) -> dict[str, Any]:
        """The positions, and which tokens see each other; a document has the positions that it has
        alone."""
        length = arranged.tokens.shape[1]
        columns = torch.arange(length, device=arranged.tokens.device)
        positions = columns[None]
        masks: dict[str, Any] = {}
        if arranged.documents is not None:
            numbers = arranged.documents
            begins = numbers != pad(numbers, (1, 0))[:, :-1]
            first = torch.where(begins, columns, 0).cummax(1).values
            positions = (columns - first) * (numbers != 0)
            masks["attention_mask"] = self.masks(same_document(numbers, numbers))
        if self.takes_positions:
            masks["position_ids"] = positions + self.first_position
        return masks

    def masks(self, is_same: Tensor) -> Tensor | dict[str, Tensor]:
        """The mask of all layers, or those of global and of local layers."""
        if not self.base._supports_sdpa:  # attention that adds its mask
            return torch.where(is_same, 0.0, torch.finfo(torch.float32).min)
        if self.sliding_window is None:
            return is_same
        columns = torch.arange(is_same.shape[-1], device=is_same.device)
        is_near = (columns[:, None] - columns).abs() <= self.sliding_window
        return {"full_attention": is_same, "sliding_attention": is_same & is_near}

    def at_tokens(self, x: Tensor, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """The vectors `[batch, seq_len, d_model]` of the text among those of a layer, which has
        special tokens too."""
        return x.flatten(0, 1)[self.arrangement(inputs, mask).places]


def untrained(
    config: Any, n_tokens: int, dropout: float, trusts: bool
) -> PreTrainedModel:
    """The model of a checkpoint's config with initial weights, and with Folio's tokens."""
    config = deepcopy(config)
    config.vocab_size = n_tokens
    for name, value in vars(config).items():
        if "drop" in name and type(value) in (int, float):
            setattr(config, name, dropout)
    return AutoModelForMaskedLM.from_config(
        config,
        dtype=torch.float32,
        attn_implementation="folio",
        trust_remote_code=trusts,
    )


def first_position(base: PreTrainedModel) -> int:
    """The position of the first token: RoBERTa's begin after the one of padding."""
    embeddings: Any = getattr(base, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return 0 if padding is None else padding + 1


class Given(nn.Module):
    """Takes the place of the encoder, whose vectors are given."""

    def forward(
        self, *ignored: Any, inputs_embeds: Tensor, **options: Any
    ) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


class HuggingFaceModel(MaskedLanguageModel):
    """Any `AutoModelForMaskedLM`. Its head is computed at the masked positions only."""

    def __init__(
        self,
        model: Any,
        special: SpecialTokens,
        ngrams: NgramEmbedding | None = None,
    ):
        """`model` is taken apart. Its tokens have Folio's ids."""
        nn.Module.__init__(self)
        self.encoder: Any = HuggingFaceEncoder(model.base_model, special, ngrams)
        setattr(model, model.base_model_prefix, Given())
        self.head: Any = model
        longest = model.config.max_position_embeddings - self.encoder.first_position
        self.max_seq_len = longest - 2  # without [CLS] and [SEP]
        self.register_state_dict_post_hook(_without_copies)
        self.register_load_state_dict_pre_hook(_with_copies)

    def predict(self, x: Tensor) -> Tensor:
        return self.head(inputs_embeds=x).logits

    def copies(self) -> dict[str, str]:
        """The names of tied weights, each with the first name of the same weight."""
        first_names: dict[Tensor, str] = {}
        names = {}
        for name, weight in self.named_parameters(remove_duplicate=False):
            first = first_names.setdefault(weight, name)
            if first != name:
                names[name] = first
        return names


def _without_copies(
    model: HuggingFaceModel, state: dict[str, Tensor], prefix: str, _: Any
) -> None:
    for name in model.copies():
        del state[prefix + name]


def _with_copies(
    model: HuggingFaceModel, state: dict[str, Tensor], prefix: str, *_: Any
) -> None:
    for name, first in model.copies().items():
        if prefix + first in state:
            state[prefix + name] = state[prefix + first]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Folio's attention, in the form of transformers; each tensor `[batch, n_heads, seq_len,
    d_head]`."""
    mixed = mix(query, key, value, mask, dropout, scaling)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register("folio", attention)
AttentionMaskInterface.register("folio", sdpa_mask)
