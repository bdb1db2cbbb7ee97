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
        made = imported
        if callable(imported) and not hasattr(imported, "get_train_dataloader"):
            try:
                signature(imported).bind()
            except TypeError as error:
                line = f"a function that makes a loader must take no arguments: {error}"
                raise TargetError(line) from None
            made = imported()

        loader = (
            made.get_train_dataloader()
            if hasattr(made, "get_train_dataloader")
            else made
        )
        # Accelerate's wrapper iterates it
        loader = getattr(loader, "base_dataloader", loader)
        if not isinstance(loader, Iterable):
            wanted = "a DataLoader, a Trainer, or batches"
            raise TargetError(f"the target made {describe(loader)} instead of {wanted}")

        self.made = made
        self.loader: Any = loader

    def facts(self, options: MaskOptions) -> Facts:
        """The ids of a loader's batches, as far as its collator's tokenizer, its Trainer or the
        options state them."""
        collator = getattr(self.loader, "collate_fn", self.loader)
        collator = getattr(collator, "data_collator", collator)  # Transformers' wrapper
        processor = SimpleNamespace(
            tokenizer=getattr(self.made, "processing_class", None)
        )
        model = getattr(self.made, "model", None)  # of a Trainer
        owner = collator

        for each in (collator, processor, getattr(model, "config", None)):
            if token_ids(each, MaskOptions()):
                owner = each
                break

        tokens = token_ids(owner, options)
        if tokens is None:
            raise TargetError(UNKNOWN)
        facts = Facts(collator, "loader", tokens)
        facts.n_workers = getattr(self.loader, "num_workers", 0)
        computes = (getattr(type(self.made), "compute_loss", model), model)
        modules = [getattr(each, "__module__", "") for each in computes]
        is_own_loss = getattr(self.made, "compute_loss_func", None)
        if (
            all(name.startswith("transformers.") for name in modules)
            and not is_own_loss
        ):
            facts.ignored = -100
        return facts

    def batches(
        self, n_batches: int, number: int, padding: int | None
    ) -> list[tuple[Masked, Array | None]]:
        """The first batches of an epoch, each with the tokens of the examples that the loader gave
        to its collator; None if they are not known."""
        seed(number)
        fill = padding or 0
        loader = self.loader
        texts: list[Array | None] = []
        collate: Any = getattr(loader, "collate_fn", None)

        def recording(examples: Any) -> Any:
            texts.append(text_of(examples, fill))
            return collate(examples)

        if collate is not None and getattr(loader, "num_workers", 1) == 0:
            loader = copy(loader)
            loader.collate_fn = recording

        batches = list(islice(iter(loader), n_batches))
        if not batches:
            line = "the loader has no batches: each iteration must give them again"
            raise TargetError(f"{line} (a generator cannot)")

        line = f"a batch is {describe(batches[0])}"
        answers = []
        for batch in batches:
            answer = read(batch, None, fill, line)
            # others may be large
            answers.append(replace(answer, extras=answer.columns))

        return list(zip(answers, texts or [None] * len(answers), strict=False))


def text_of(examples: Any, fill: int) -> Array | None:
    """The tokens of the examples of a batch; None if they have labels, or no ids."""
    rows = []
    for example in examples:
        if not isinstance(example, Mapping) or "labels" in example:
            return None
        if example.get("input_ids") is None:
            return None
        rows.append(matrix(example["input_ids"]))
    return matrix(rows, fill).copy()
