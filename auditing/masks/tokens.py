"""The meaning of the ids, ordinary and special, and the rate and shares that the target states
about its masks."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditing.statistics import Array

KINDS = {  # of targets, by how they are called
    "tensor": "function of a tensor",
    "array": "function of an array",
    "lists": "function of lists",
    "collator": "data collator",
    "dict": "function of a batch dict",
}
# The names of attributes by which targets state their ids, rates and shares.
NAMES = {
    "n_tokens": ("n_tokens", "vocab_size", "n_vocab", "num_tokens", "vocabulary_size"),
    "mask": ("mask_token_id", "mask_id", "mask_idx", "mask_index", "mask_token"),
    "padding": (
        "pad_token_id",
        "pad_id",
        "padding_idx",
        "pad_idx",
        "pad_index",
        "padding_token",
        "pad_token",
    ),
    "special": (
        "no_mask_tokens",
        "special_ids",
        "special_token_ids",
        "mask_ignore_token_ids",
        "special_tokens",
    ),
    "rate": (
        "masking_prob",
        "mlm_probability",
        "mlm_prob",
        "mask_prob",
        "masking_rate",
        "mask_probability",
    ),
    "masked": ("mask_replace_prob",),
    "random": ("randomize_prob", "random_replace_prob"),
    "kept": ("no_change_prob",),
}


def most_frequent(values: Array, share: float = 0.0) -> int | None:
    """The most frequent value, if it is more than a share of all."""
    different, counts = np.unique(values, return_counts=True)
    if not len(different) or counts.max() <= share * values.size:
        return None
    return int(different[counts.argmax()])


@dataclass(frozen=True)
class MaskOptions:
    """Options of the user about a masking target; None: its attributes, its tokenizer or its
    behavior decide."""

    kind: str | None = None  # of KINDS
    n_tokens: int | None = None
    mask: int | None = None
    padding: int | None = None
    special: tuple[int, ...] | None = None
    ignored: int | None = None  # the label of positions that the loss skips
    rate: float | None = None  # the share of ordinary tokens that is selected
    recipe: str | None = None
    # DataLoader workers; 0: the target is only called in the training process
    workers: int = 2
    seed: int = 0


@dataclass(frozen=True)
class TokenIds:
    """The ids of a vocabulary. None: not known yet."""

    n_tokens: int
    mask: int | None
    padding: int | None
    special: tuple[int, ...]  # all special ids, with mask and padding, ascending
    # the first and last token of a window, such as [CLS] and [SEP]
    edges: tuple[int, int] | None
    unknown: int | None = None
    ignored: int | None = None  # as stated

    @functools.cached_property
    def ordinary(self) -> Array:
        """The ids that are not special."""
        return np.setdiff1d(np.arange(self.n_tokens), self.special)

    def with_mask(self, mask: int | None) -> "TokenIds":
        """The same with the mask token that the target's behavior showed."""
        special = set(self.special)
        if mask is not None and mask < self.n_tokens:
            special.add(mask)
        if self.mask is not None:
            mask = self.mask
        return replace(self, special=tuple(sorted(special)), mask=mask)

    def known(self, inputs: Array, labels: Array) -> Array:
        """The inputs with labels put back, where they are ids. A label of most positions is the one
        that is ignored."""
        ignored = most_frequent(labels, 0.5) if self.ignored is None else self.ignored
        is_id = (labels >= 0) & (labels < self.n_tokens)
        is_id &= (labels != self.padding) & (labels != ignored)
        return np.where(is_id, labels, inputs)

    def originals(self, inputs: Array, labels: Array) -> Array:
        """The text of a batch as its labels tell it. In a batch with padding, a [MASK] without a
        label is taken for masked padding."""
        ids = self.known(inputs, labels)
        if self.padding is None or not (ids == self.padding).any():
            return ids
        return np.where(ids == self.mask, self.padding, ids)


def attribute(target: Any, names: Iterable[str]) -> Any:
    """The first attribute with one of these names that is not None: of the target, of the keywords
    of a partial and what it wraps, or of the object of a method."""
    while isinstance(target, functools.partial):
        for name in names:
            if target.keywords.get(name) is not None:
                return target.keywords[name]
        target = target.func

    for owner in (target, getattr(target, "__self__", None)):
        for name in names:
            value = getattr(owner, name, None)
            if value is not None:
                return value

    return None


def number(target: Any, what: str, kind: type = int) -> Any:
    """Such an attribute if it is a number: an integer id, or a share as float."""
    value = attribute(target, NAMES[what])
    if (
        hasattr(value, "item") and np.asarray(value).size == 1
    ):  # a tensor or a NumPy number
        value = value.item()
    if isinstance(value, bool) or not isinstance(
        value, int if kind is int else int | float
    ):
        return None
    return kind(value)


def tokenizer_of(target: Any) -> Any:
    """The tokenizer that a target has, or None: one of transformers, or of the same interface."""
    tokenizer = attribute(target, ["tokenizer"])
    is_known = isinstance(getattr(tokenizer, "all_special_ids", None), list)
    return tokenizer if is_known and callable(tokenizer) else None


def token_ids(target: Any, options: MaskOptions) -> TokenIds | None:
    """The ids by the options, the tokenizer, or the attributes of a target; None if the number of
    tokens is unknown."""
    tokenizer = tokenizer_of(target)
    unknown = None
    if tokenizer is not None:
        mask = tokenizer.mask_token_id
        padding = tokenizer.pad_token_id
        special = list(tokenizer.all_special_ids)
        unknown = tokenizer.unk_token_id
        n_tokens = len(tokenizer)
    else:
        mask = number(target, "mask")
        padding = number(target, "padding")
        special = stated_special(target)
        n_tokens = number(target, "n_tokens")

    n_tokens = options.n_tokens or n_tokens
    if n_tokens is None:
        return None
    mask = mask if options.mask is None else options.mask
    padding = padding if options.padding is None else options.padding
    special = special if options.special is None else list(options.special)
    others = [id for id in special if id not in (mask, padding, unknown)]
    edges = (others[0], others[min(1, len(others) - 1)]) if others else None
    every = (*special, mask, padding, unknown)
    known = {id for id in every if id is not None and 0 <= id < n_tokens}
    return TokenIds(
        n_tokens, mask, padding, tuple(sorted(known)), edges, unknown, options.ignored
    )


def stated_special(target: Any) -> list[int]:
    """The special ids that the attributes of a target state: a list, a tensor or an array."""
    stated = attribute(target, NAMES["special"])
    if hasattr(stated, "tolist"):
        stated = stated.tolist()
    if not isinstance(stated, Iterable):
        return []
    return [int(id) for id in stated if isinstance(id, int | np.integer)]


class Facts:
    """The facts about a target that are known before it is measured: those that it and its
    attributes state."""

    def __init__(self, target: Any, kind: str, tokens: TokenIds):
        """`kind` is one of KINDS, or "loader"."""
        self.kind = kind
        self.tokens = tokens
        self.n_workers = 0  # of a loader
        self.ignored: int | None = None  # the label that the model of a Trainer ignores
        # of the function or class
        self.name = getattr(target, "__name__", type(target).__name__)
        self.rate = number(target, "rate", float)
        masked = number(target, "masked", float)
        random = number(target, "random", float)
        kept = number(target, "kept", float)
        if masked is None and random is not None and kept is not None:
            masked = 1 - random - kept
        # The shares of [MASK], random and unchanged tokens. Rate and shares are None if they are
        # not stated.
        self.shares = None
        if masked is not None and random is not None:
            self.shares = (masked, random, 1 - masked - random)
        by_name = "wholeword" in self.name.lower().replace("_", "")
        self.whole_words = bool(attribute(target, ["whole_word_mask"])) or by_name
