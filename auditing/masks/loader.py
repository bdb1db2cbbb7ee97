"""Serves the batches of a DataLoader, a Trainer, or any iterable of batches, next to them: in their
own process."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from inspect import signature
from itertools import islice
from types import SimpleNamespace
from typing import Any

from auditing.errors import TargetError, describe
from auditing.masks.calls import UNKNOWN, seed
from auditing.masks.target import matrix, read
from auditing.masks.texts import Masked
from auditing.masks.tokens import Facts, MaskOptions, token_ids
from auditing.statistics import Array


class Service:
    """Reads a loader: `facts`, then `batches`."""

    def __init__(self, imported: Any):
        """Raises TargetError if it is not a loader and does not make one."""
        is_function = callable(imported) and not hasattr(imported, "get_train_dataloader")
        if is_function:
            try:
                signature(imported).bind()
            except TypeError as error:
                raise TargetError(
                    f"a function that makes a loader must take no arguments: {error}"
                ) from None
        self.made = made = imported() if is_function else imported
        loader = made.get_train_dataloader() if hasattr(made, "get_train_dataloader") else made
        loader = getattr(loader, "base_dataloader", loader)  # Accelerate's wrapper iterates it
        if not isinstance(loader, Iterable):
            raise TargetError(
                f"the target made {describe(loader)} instead of a DataLoader, a Trainer, or batches"
            )
        self.loader: Any = loader

    def facts(self, options: MaskOptions) -> Facts:
        """The ids of a loader's batches, as far as its collator's tokenizer, its Trainer or the
        options state them."""
        owner = getattr(self.loader, "collate_fn", self.loader)
        owner = getattr(owner, "data_collator", owner)  # Transformers' wrapper removes columns
        model = getattr(self.made, "model", None)  # of a Trainer
        owners = (
            owner,
            SimpleNamespace(tokenizer=getattr(self.made, "processing_class", None)),
            getattr(model, "config", None),
        )
        tokens = token_ids(
            next((each for each in owners if token_ids(each, MaskOptions())), owner), options
        )
        if tokens is None:
            raise TargetError(UNKNOWN)
        facts = Facts(owner, "loader", tokens)
        facts.n_workers = getattr(self.loader, "num_workers", 0)
        computes = getattr(type(self.made), "compute_loss", model), model
        is_theirs = all(
            getattr(each, "__module__", "").startswith("transformers.") for each in computes
        )
        facts.ignored = (
            -100 if is_theirs and not getattr(self.made, "compute_loss_func", None) else None
        )
        return facts

    def batches(
        self, n_batches: int, number: int, padding: int | None
    ) -> list[tuple[Masked, Array | None]]:
        """The first batches of an epoch, each with the tokens of the examples that the loader gave
        to its collator; None if they are not known."""
        seed(number)
        loader, examples = self.loader, []
        own: Any = getattr(loader, "collate_fn", None)

        def recording(batch: Any) -> Any:
            rows = [
                one.get("input_ids") if isinstance(one, Mapping) and "labels" not in one else None
                for one in batch
            ]
            is_known = all(row is not None for row in rows)
            examples.append(
                matrix([matrix(row) for row in rows], padding or 0).copy() if is_known else None
            )
            return own(batch)

        if own is not None and getattr(loader, "num_workers", 1) == 0:
            loader = copy(loader)
            loader.collate_fn = recording
        found = list(islice(iter(loader), n_batches))
        if not found:
            raise TargetError(
                "the loader has no batches: each iteration must give them again (a generator cannot)"
            )
        line = f"a batch is {describe(found[0])}"
        answers = (read(batch, None, padding or 0, line) for batch in found)
        masked = [
            replace(answer, extras=answer.columns) for answer in answers
        ]  # others may be large
        return list(zip(masked, examples or [None] * len(found), strict=False))
