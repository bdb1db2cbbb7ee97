"""Serves a pipeline in its own process: makes its model and batches, trains it, and measures it.

The target is a module or file with three functions:

    make_model(tokens)                          -> model, or (model, optimizer)
    make_batches(ids, tokens, seed, training)   -> an iterable of batches
    loss_and_logits(model, batch)               -> (loss, logits [batch, seq_len, n_tokens] or [n_labelled, n_tokens])

`ids` is a text as a LongTensor `[n]` of characters, and `tokens` an
`auditing.pipelines.target_batch.Tokens`. If the target has `SPECIAL_FIRST = True`, the special
tokens are the first ids. The audit does not see it.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auditing.errors import TargetError, describe, raised
from auditing.masks.calls import seed as seed_generators
from auditing.masks.target import matrix, parts_of
from auditing.masks.texts import Masked
from auditing.pipelines.target_batch import Array, Tokens, changed, read_batch

REQUIRED = ("make_model", "make_batches", "loss_and_logits")
# of the audit's optimizer, and its clipping
LEARNING_RATE = 1e-3
WARMUP_STEPS = 100
MAX_NORM = 1.0


class Service:
    """The model, the optimizer and the batches of a pipeline between calls."""

    def __init__(self, target: Any):
        """Raises TargetError if the target lacks one of the three functions."""
        missing = [
            name for name in REQUIRED if not callable(getattr(target, name, None))
        ]
        if missing:
            raise TargetError(
                f"the target has no function {missing[0]}: it needs {', '.join(REQUIRED)}"
            )
        self.target = target
        self.kept: dict[str, list[Any]] = {}  # batches by the name they were made under

    def make_model(self, text: Array, characters: str, seed: int) -> dict[str, Any]:
        """Make the model, to be trained on a text as ids `[n]`. Returns facts about it."""
        self.tokens = Tokens(
            characters, bool(getattr(self.target, "SPECIAL_FIRST", False))
        )
        torch.manual_seed(seed)
        made = self._called("make_model", self.tokens)
        self.model, given = (
            made if isinstance(made, tuple | list) and len(made) == 2 else (made, None)
        )
        if not isinstance(self.model, nn.Module):
            raise TargetError(
                f"make_model returned {describe(made)}: it must return a module, or (module, optimizer)"
            )

        trainable = [
            weight for weight in self.model.parameters() if weight.requires_grad
        ]
        self.is_ours = given is None
        self.optimizer: Any = (
            torch.optim.AdamW(trainable, LEARNING_RATE)
            if self.is_ours and trainable
            else given
        )
        self.before = {
            name: weight.detach().clone()
            for name, weight in self.model.named_parameters()
        }
        # the iterable is made again, with another seed, when it ends
        seeds = itertools.count(seed)
        self.stream = (batch for i in seeds for batch in self._batches(text, i, True))
        self.n_steps = 0
        return {
            "model": type(self.model).__name__,
            "n_weights": sum(weight.numel() for weight in self.before.values()),
            "optimizer": type(self.optimizer).__name__
            + (f", learning rate {LEARNING_RATE:g}" if self.is_ours else ""),
        }

    def make_batches(
        self, name: str, text: Array, training: bool, n_characters: int, seed: int
    ) -> list[Masked]:
        """Batches of a text `[n]` with at least `n_characters` ids in all; they stay here for
        `measure` by a name."""
        self.kept[name] = []
        found = []
        n = 0
        seed_generators(seed)

        for batch in self._batches(text, seed, training):
            self.kept[name].append(batch)
            found.append(read_batch(batch, self.tokens))
            if (n := n + found[-1].inputs.size) >= n_characters:
                break

        if not found:
            raise TargetError(
                f"make_batches called with ids [{len(text)}] and training={training} made no batch"
            )

        return found

    @torch.no_grad()
    def shake(self, deviation: float) -> None:
        """Set the weights to their initial values plus noise, because nothing passes through
        weights of 0."""
        torch.manual_seed(0)
        for name, weight in self.model.named_parameters():
            weight.copy_(self.before[name] + deviation * torch.randn_like(weight))

    def train(self, seconds: float) -> list[float]:
        """Train for some seconds, at least one step. Returns the losses of the steps."""
        end = time.monotonic() + seconds
        losses: list[float] = []
        self.model.train()
        while not losses or (time.monotonic() < end and np.isfinite(losses[-1])):
            loss, _ = self._loss_and_logits(next(self.stream))
            losses.append(loss.item())
            if np.isfinite(losses[-1]):
                self._step(loss)
        return losses

    def measure(
        self, name: str, index: int, changes: Mapping[str, Array]
    ) -> tuple[float, Array]:
        """The loss and logits of a kept batch with other values for some of its tensors."""
        self.model.eval()
        with torch.no_grad():
            loss, logits = self._loss_and_logits(
                changed(self.kept[name][index], changes, self.tokens)
            )
        return loss.item(), matrix(logits)[
            ..., self.tokens.of_audit(np.arange(logits.shape[-1]))
        ]

    def unchanged(self) -> tuple[list[str], int]:
        """The names of the weights that training has not changed, and the number of all."""
        weights = self.model.named_parameters()
        return [
            name for name, weight in weights if torch.equal(weight, self.before[name])
        ], len(self.before)

    def _step(self, loss: Tensor) -> None:
        self.n_steps += 1
        if (
            self.optimizer is None or not loss.requires_grad
        ):  # nothing can be trained: `unchanged` shows it
            return

        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        for group in self.optimizer.param_groups if self.is_ours else ():
            group["lr"] = LEARNING_RATE * min(1.0, self.n_steps / WARMUP_STEPS)
        self.optimizer.step()

    def _batches(self, text: Array, seed: int, training: bool) -> Iterator[Any]:
        ids = torch.from_numpy(self.tokens.of_audit(text))
        made = self._called("make_batches", ids, self.tokens, seed, training)
        try:
            yield from made
        except Exception as error:
            raise TargetError(
                f"make_batches returned {describe(made)}, which raised {raised(error)}"
            ) from error

    def _loss_and_logits(self, batch: Any) -> tuple[Tensor, Tensor]:
        parts, x, _ = parts_of(batch)  # first, for the target may take them out
        output = self._called("loss_and_logits", self.model, batch)
        shape = np.shape(parts[x])
        n_tokens = self.tokens.n_tokens
        match output:
            case (Tensor() as loss, Tensor() as logits) if (
                loss.numel() == 1 and logits.dim() > 1
            ):
                if logits.shape[-1] >= n_tokens and (
                    logits.dim() == 2 or logits.shape[:-1] == shape
                ):
                    return loss, logits

        call = f"loss_and_logits called with inputs {list(shape)} returned {describe(output)}"
        wanted = f"(loss, logits), a number and [batch, seq_len, {n_tokens}] or [n_labelled, {n_tokens}]"
        raise TargetError(f"{call}: it must return {wanted}")

    def _called(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self.target, name)(*arguments)
        except Exception as error:
            given = ", ".join(describe(each) for each in arguments)
            raise TargetError(f"{name}({given}) raised {raised(error)}") from error
