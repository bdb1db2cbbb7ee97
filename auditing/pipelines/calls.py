"""Serves a pipeline in its own process: makes its model and batches, trains it, and measures it.

The target is a module or file with three functions, and a fourth one if its evaluation is to be audited:

    make_model(tokens)                          -> model, or (model, optimizer)
    make_batches(ids, tokens, seed, training)   -> an iterable of batches
    loss_and_logits(model, batch)               -> (loss, logits [batch, seq_len, n_tokens] or [n_labelled, n_tokens])
    evaluate(model, ids, tokens)                -> the loss in nats per masked token, as a number

`ids` is a text as a LongTensor `[n]` of characters, and `tokens` an `auditing.pipelines.play_tokens.Tokens`. If the
target has `SPECIAL_FIRST = True`, the special tokens are the first ids. The audit does not see it.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auditing.errors import TargetError, describe, raised
from auditing.pipelines.play_tokens import Array, Tokens
from auditing.pipelines.stand_in import stand_in
from auditing.pipelines.target_batch import Batch, array, changed, check_output, read, tensor_names

REQUIRED = ("make_model", "make_batches", "loss_and_logits")
LARGEST_BATCH = 65_536  # ids: the exact posterior of each takes time
LEARNING_RATE, WARMUP_STEPS, MAX_NORM = 1e-3, 100, 1.0  # of the audit's optimizer, and its clipping
SHAKEN = 0.02  # the standard deviation of what `shake` adds to weights
IMPOSSIBLE = -1e4  # as a logit: finite, so that sums with a weight of 0 stay finite


def functions(imported: Any) -> dict[str, Callable[..., Any]]:
    """The functions that the audit calls. Raises TargetError if the target lacks one of the three."""
    missing = [name for name in REQUIRED if not callable(getattr(imported, name, None))]
    if missing:
        raise TargetError(f"the target has no function {missing[0]}: it needs {', '.join(REQUIRED)}")
    served = Served(imported)
    names = ("make_model", "make_batches", "shake", "restore", "train", "measure", "unchanged", "evaluate")
    return {name: getattr(served, name) for name in names}


class Served:
    """The model, the optimizer and the batches of a pipeline between calls."""

    def __init__(self, target: Any):
        self.target = target
        self.kept: dict[str, list[Any]] = {}  # batches by the name they were made under

    def make_model(self, text: Array, characters: str, seed: int) -> dict[str, Any]:
        """Make the model, to be trained on a text as ids `[n]`. Returns facts about it."""
        self.tokens, self.seed = Tokens(characters, bool(getattr(self.target, "SPECIAL_FIRST", False))), seed
        torch.manual_seed(seed)
        made = self._called("make_model", self.tokens)
        self.model, self.optimizer = made if isinstance(made, tuple | list) and len(made) == 2 else (made, None)
        if not isinstance(self.model, nn.Module):
            raise TargetError(f"make_model returned {describe(made)}: it must return a module, or (module, optimizer)")
        weights = dict(self.model.named_parameters())
        trainable = [weight for weight in weights.values() if weight.requires_grad]
        self.is_ours = self.optimizer is None
        if self.is_ours and trainable:
            self.optimizer = torch.optim.AdamW(trainable, LEARNING_RATE)
        self.before = {name: weight.detach().clone() for name, weight in weights.items()}
        seeds = itertools.count(seed)  # the iterable is made again, with another seed, when it ends
        self.stream = (batch for i in seeds for batch in self._batches(self._text(text), i, True))
        self.n_steps, self.n_logits = 0, self.tokens.n_tokens
        return {
            "model": type(self.model).__name__,
            "n_weights": sum(weight.numel() for weight in weights.values()),
            "optimizer": type(self.optimizer).__name__ + (f", learning rate {LEARNING_RATE:g}" if self.is_ours else ""),
            "evaluates": callable(getattr(self.target, "evaluate", None)),
        }

    def make_batches(self, name: str, text: Array, training: bool, n_characters: int, seed: int) -> list[Batch]:
        """Batches of at least `n_characters` ids in all, or all that the pipeline makes of a text `[n]`.

        They stay here under a name, for `measure`. `training` is what `make_batches` is told.
        """
        to_audit, found, n = self.tokens.to_audit, [], 0
        self.kept[name] = []
        for seed_one in (torch.manual_seed, np.random.seed, random.seed):
            seed_one(seed)
        for batch in self._batches(self._text(text), seed, training):
            arrays = read(batch)
            found.append(Batch(to_audit(arrays.inputs), to_audit(arrays.labels), arrays.others))
            self.kept[name].append(batch)
            if (size := arrays.inputs.size) > LARGEST_BATCH:
                shape = list(arrays.inputs.shape)
                raise TargetError(f"make_batches made a batch {shape}: make it {LARGEST_BATCH:,} ids at most")
            n += size
            if n >= n_characters:
                break
        if not found:
            raise TargetError(f"make_batches called with ids [{len(text)}] and training={training} made no batch")
        return found

    @torch.no_grad()
    def shake(self) -> None:
        """Add noise to the weights, because some start at 0, where nothing reaches the predictions."""
        torch.manual_seed(self.seed)
        for weight in self.model.parameters():
            weight.add_(SHAKEN * torch.randn_like(weight))

    @torch.no_grad()
    def restore(self) -> None:
        """Set the weights to what they were before `shake`."""
        for name, weight in self.model.named_parameters():
            weight.copy_(self.before[name])

    def train(self, seconds: float) -> dict[str, Any]:
        """Train for some seconds, at least one step. Returns the steps so far, the losses, and the ids seen."""
        end, n_ids = time.monotonic() + seconds, 0
        losses: list[float] = []
        self.model.train()
        while not losses or (time.monotonic() < end and np.isfinite(losses[-1])):
            batch = next(self.stream)
            loss, _ = self._loss_and_logits(batch)
            losses.append(loss.item())
            tensors, inputs, _ = tensor_names(batch)
            n_ids += tensors[inputs].numel()
            if np.isfinite(losses[-1]):
                self._step(loss)
        return {"steps": self.n_steps, "losses": losses, "ids": n_ids}

    def measure(
        self, name: str, index: int, changes: Mapping[str, Array], table: Array | None = None
    ) -> tuple[float, Array]:
        """The loss and the logits of a kept batch, with other values for some of its tensors.

        A table of logits `[n_tokens, n_tokens]` takes the model's place.
        """
        self.model.eval()
        of_audit = self.tokens.of_audit
        new = {key: of_audit(value) if key in ("inputs", "labels") else value for key, value in changes.items()}
        with torch.no_grad(), nullcontext() if table is None else stand_in(self.model, self._wide(table)):
            loss, logits = self._loss_and_logits(changed(self.kept[name][index], new))
        return loss.item(), array(logits)[..., of_audit(np.arange(logits.shape[-1]))]

    def unchanged(self) -> tuple[list[str], int]:
        """The names of the weights that training has not changed, and the number of all."""
        weights = dict(self.model.named_parameters())
        return [name for name, before in self.before.items() if torch.equal(weights[name], before)], len(weights)

    def evaluate(self, text: Array, seed: int, table: Array) -> tuple[float, list[Array]]:
        """The target's evaluation of a text with a table of logits in the model's place, and the inputs it showed."""
        torch.manual_seed(seed)
        self.model.eval()
        with stand_in(self.model, self._wide(table)) as seen:
            value = self._called("evaluate", self.model, self._text(text), self.tokens)
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TargetError(f"evaluate returned {describe(value)}: it must return a number")
        if not seen:
            raise TargetError(f"evaluate returned {number:g}, and did not call the model with ids [batch, seq_len]")
        return float(number), [self.tokens.to_audit(ids.numpy()) for ids in seen]

    def _wide(self, table: Array) -> Tensor:
        """A table of logits in the target's ids and with as many columns as its model has."""
        ids = self.tokens.of_audit(np.arange(self.tokens.n_tokens))
        wide = np.full((len(ids), self.n_logits), IMPOSSIBLE, dtype=np.float32)
        wide[np.ix_(ids, ids)] = table
        return torch.from_numpy(wide)

    def _text(self, ids: Array) -> Tensor:
        return torch.from_numpy(self.tokens.of_audit(ids))

    def _step(self, loss: Tensor) -> None:
        self.n_steps += 1
        if self.optimizer is None or not loss.requires_grad:  # nothing can be trained: `unchanged` shows it
            return
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        if self.is_ours:
            for group in self.optimizer.param_groups:
                group["lr"] = LEARNING_RATE * min(1.0, self.n_steps / WARMUP_STEPS)
        self.optimizer.step()

    def _batches(self, ids: Tensor, seed: int, training: bool) -> Iterator[Any]:
        made = self._called("make_batches", ids, self.tokens, seed, training)
        try:
            yield from made
        except TypeError as error:
            raise TargetError(f"make_batches returned {describe(made)}: {raised(error)}") from error
        except Exception as error:
            raise TargetError(f"make_batches called with ids [{len(ids)}] raised {raised(error)}") from error

    def _loss_and_logits(self, batch: Any) -> tuple[Tensor, Tensor]:
        loss, logits = check_output(self._called("loss_and_logits", self.model, batch), batch, self.tokens.n_tokens)
        self.n_logits = logits.shape[-1]
        return loss, logits

    def _called(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self.target, name)(*arguments)
        except Exception as error:
            given = ", ".join(describe(each) for each in arguments)
            raise TargetError(f"{name}({given}) raised {raised(error)}") from error
