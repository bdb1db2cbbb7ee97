"""The meaning of the ids, ordinary and special, and the rate and shares that the target states about its masks."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

N_TOKENS = ("n_tokens", "vocab_size", "n_vocab", "num_tokens", "vocabulary_size")
MASK = ("mask_token", "mask_token_id", "mask_id", "mask_idx", "mask_index")
PADDING = ("padding_token", "pad_token_id", "pad_id", "padding_idx", "pad_idx", "pad_index", "pad_token")
SPECIAL = ("no_mask_tokens", "special_tokens", "special_ids", "special_token_ids", "mask_ignore_token_ids")
RATE = ("masking_prob", "mlm_probability", "mlm_prob", "mask_prob", "masking_rate", "mask_probability")
MASK_SHARE = ("mask_replace_prob",)
RANDOM_SHARE = ("randomize_prob", "random_replace_prob")
KEPT_SHARE = ("no_change_prob",)
SPECIAL_HINT = "If these ids are special, state --special."


@dataclass(frozen=True)
class MaskOptions:
    """Options of the user about a masking target; None: its attributes, its tokenizer or its behavior decide."""

    kind: str | None = None  # tensor, collator or dict
    n_tokens: int | None = None
    mask: int | None = None
    padding: int | None = None
    special: tuple[int, ...] | None = None
    ignored: int | None = None  # the label of positions that the loss skips
    rate: float | None = None  # the share of ordinary tokens that is selected
    recipe: str | None = None
    workers: int = 2  # DataLoader workers; 0: the target is only called in the training process
    seed: int = 0


@dataclass(frozen=True)
class TokenIds:
    """The ids of a vocabulary. None: not known yet."""

    n_tokens: int
    mask: int | None
    padding: int | None
    special: tuple[int, ...]  # all special ids, with mask and padding, ascending
    edges: tuple[int, int] | None  # the first and last token of a window, such as [CLS] and [SEP]
    unknown: int | None = None
    ignored: int | None = None  # as stated

    @property
    def ordinary(self) -> np.ndarray:
        """The ids that are not special."""
        return np.setdiff1d(np.arange(self.n_tokens), self.special)

    def with_special(self, ids: Iterable[int], mask: int | None) -> "TokenIds":
        """The same with more special ids, which the target's behavior showed."""
        found = {*self.special, *ids, *([mask] if mask is not None and mask < self.n_tokens else [])}
        return replace(self, special=tuple(sorted(found)), mask=mask if self.mask is None else self.mask)


@dataclass(frozen=True)
class Claims:
    """The rate and the shares that the target's attributes state; None if they state nothing."""

    rate: float | None
    shares: tuple[float, float, float] | None  # of [MASK], random, unchanged
    whole_words: bool
    name: str  # of the function or class


def owners(target: Any) -> list[Any]:
    """The objects whose attributes describe a target: itself, what a partial wraps, the object of a method."""
    found = [target]
    while isinstance(found[-1], functools.partial):
        found.append(found[-1].func)
    if hasattr(found[-1], "__self__"):
        found.append(found[-1].__self__)
    return found


def attribute(target: Any, names: Iterable[str]) -> Any:
    """The first attribute of the target with one of these names that is not None."""
    for owner in owners(target):
        for name in names:
            if getattr(owner, name, None) is not None:
                return getattr(owner, name)
    return None


def number(target: Any, names: Iterable[str], kind: type = int) -> Any:
    """Such an attribute if it is a number: an integer id, or a share as float."""
    value = attribute(target, names)
    if hasattr(value, "item"):  # of a tensor or a NumPy number
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # more than one
            value = None
    accepted = (int,) if kind is int else (int, float)
    return kind(value) if isinstance(value, accepted) and not isinstance(value, bool) else None


def tokenizer_of(target: Any) -> Any:
    """The tokenizer that a target has, or None: one of transformers, or of the same interface."""
    tokenizer = attribute(target, ["tokenizer"])
    return tokenizer if callable(tokenizer) and isinstance(getattr(tokenizer, "all_special_ids", None), list) else None


def token_ids(target: Any, options: MaskOptions) -> TokenIds | None:
    """The ids by the options, the tokenizer, or the attributes of a target; None if the number of tokens is unknown."""
    tokenizer = tokenizer_of(target)
    if tokenizer is not None:
        mask, padding = tokenizer.mask_token_id, tokenizer.pad_token_id
        special, unknown, n_tokens = list(tokenizer.all_special_ids), tokenizer.unk_token_id, len(tokenizer)
    else:
        mask, padding, unknown = number(target, MASK), number(target, PADDING), None
        listed = attribute(target, SPECIAL)
        is_listed = isinstance(listed, Iterable) and not isinstance(listed, str)
        special = [int(id) for id in listed if isinstance(id, int | np.integer)] if is_listed else []
        n_tokens = number(target, N_TOKENS)
    n_tokens = options.n_tokens or n_tokens
    if n_tokens is None:
        return None
    mask = options.mask if options.mask is not None else mask
    padding = options.padding if options.padding is not None else padding
    special = list(options.special) if options.special is not None else special
    others = [id for id in special if id not in (mask, padding, unknown)]
    edges = (others[0], others[min(1, len(others) - 1)]) if others else None
    known = {id for id in (*special, mask, padding, unknown) if id is not None and 0 <= id < n_tokens}
    return TokenIds(n_tokens, mask, padding, tuple(sorted(known)), edges, unknown, options.ignored)


def claims(target: Any) -> Claims:
    """The masking rate and shares that a target states in its attributes."""
    rate = number(target, RATE, float)
    masked, random, kept = (number(target, names, float) for names in (MASK_SHARE, RANDOM_SHARE, KEPT_SHARE))
    shares = None
    if masked is not None and random is not None:
        shares = (masked, random, 1 - masked - random)
    elif random is not None and kept is not None:
        shares = (1 - random - kept, random, kept)
    name = type(target).__name__ if not hasattr(target, "__name__") else target.__name__
    whole = bool(attribute(target, ["whole_word_mask"])) or "wholeword" in name.lower().replace("_", "")
    return Claims(rate, shares, whole, name)
