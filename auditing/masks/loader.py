"""Serves the batches of a DataLoader, a Trainer, or any iterable of batches, next to them: in their own process."""

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from itertools import islice
from typing import Any

import numpy as np

from auditing.errors import TargetError, describe
from auditing.masks.calls import seed
from auditing.masks.target import matrix, read
from auditing.masks.texts import Masked
from auditing.masks.tokens import Facts, MaskOptions, facts_of, token_ids


def functions(imported: Any) -> dict[str, Callable[..., Any]]:
    """The calls of an audit, by name: `facts`, then `batches`. Raises TargetError."""
    is_function = callable(imported) and not hasattr(imported, "get_train_dataloader")
    if is_function:
        try:
            signature(imported).bind()
        except TypeError as error:
            raise TargetError(f"a function that makes a loader must take no arguments: {error}") from None
    made = imported() if is_function else imported
    loader = made.get_train_dataloader() if hasattr(made, "get_train_dataloader") else made
    loader = getattr(loader, "base_dataloader", loader)  # Accelerate's wrapper iterates it
    if not isinstance(loader, Iterable):
        raise TargetError(f"the target made {describe(loader)} instead of a DataLoader, a Trainer, or batches")
    return {"facts": lambda options: facts(loader, options), "batches": lambda *sizes: batches(loader, *sizes)}


def facts(loader: Any, options: MaskOptions) -> Facts:
    """The ids of a loader's batches, as far as its collator's tokenizer or the options state them."""
    owner = getattr(loader, "collate_fn", loader)
    owner = getattr(owner, "data_collator", owner)  # Transformers' wrapper removes columns
    tokens = token_ids(owner, options)
    if tokens is None:
        raise TargetError("the number of tokens is unknown: state --n-tokens, --mask, and --special")
    return facts_of(owner, "loader", tokens)


def batches(loader: Any, n_batches: int, number: int, padding: int | None) -> list[tuple[Masked, np.ndarray | None]]:
    """The first batches of an epoch, each with the tokens of the examples that the loader gave to its collator; None if
    they are not known."""
    seed(number)
    own, examples = getattr(loader, "collate_fn", None), []

    def recording(batch: Any) -> Any:
        rows = [each.get("input_ids") if isinstance(each, Mapping) and "labels" not in each else None for each in batch]
        is_known = all(row is not None for row in rows)
        examples.append(matrix([matrix(row) for row in rows], padding or 0).copy() if is_known else None)
        return own(batch) if own else batch

    is_here = own is not None and getattr(loader, "num_workers", 1) == 0
    if is_here:
        loader.collate_fn = recording
    try:
        found = list(islice(iter(loader), n_batches))
    finally:
        if is_here:
            loader.collate_fn = own
    if not found:
        raise TargetError("the loader has no batches: each iteration must give them again, which a generator does not")
    line = f"a batch is {describe(found[0])}"
    masked = [read(batch, None, padding or 0, line) for batch in found]
    return list(zip(masked, examples or [None] * len(found), strict=False))
