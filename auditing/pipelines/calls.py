"""Serves a pipeline in its own process: makes its model and batches, trains it, and measures it.

The target is a module or file with three functions, and a fourth one if its evaluation is to be audited:

    make_model(tokens)                          -> model, or (model, optimizer)
    make_batches(ids, tokens, seed, training)   -> an iterable of batches
    loss_and_logits(model, batch)               -> (loss, logits [batch, seq_len, n_tokens])
    evaluate(model, ids, tokens)                -> the loss in nats per masked token, as a number

`ids` is a text as a LongTensor `[n]` of characters, and `tokens` an `auditing.pipelines.tokens.Tokens`. If the target
has `SPECIAL_FIRST = True`, the special tokens are the first ids. The audit does not see it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auditing.errors import TargetError, describe, raised
from auditing.pipelines.batch import Array, Batch, array, changed, check_output, read, tensor_names
from auditing.pipelines.stand_in import StandIn
from auditing.pipelines.tokens import Tokens

REQUIRED = ("make_model", "make_batches", "loss_and_logits")
LARGEST_BATCH = 65_536  # ids: the exact posterior of each takes time
LEARNING_RATE, WARMUP_STEPS, MAX_NORM = 1e-3, 100, 1.0  # of the audit's optimizer, and its clipping


def functions(imported: Any) -> dict[str, Callable[..., Any]]:
    """The functions that the audit calls. Raises TargetError if the target lacks one of the three."""
    missing = [name for name in REQUIRED if not callable(getattr(imported, name, None))]
    if missing:
        raise TargetError(f"the target has no function {missing[0]}: it needs {', '.join(REQUIRED)}")
    served = Served(imported)
    names = ("make_model", "make_batches", "train", "measure", "unchanged", "evaluate", "answer")
    return {name: getattr(served, name) for name in names}


class Served:
    """The model, the optimizer and the batches of a pipeline between calls."""

    def __init__(self, target: Any):
        self.target = target
        self.batches: list[Any] = []

    def make_model(self, training: Array, validation: Array, characters: str, seed: int) -> dict[str, Any]:
        """Make the model. Returns its name, its number of weights, its optimizer, and whether there is `evaluate`.

        `training` and `validation` are texts as ids `[n]`.
        """
        self.tokens = Tokens(characters, bool(getattr(self.target, "SPECIAL_FIRST", False)))
        self.texts = {True: self._text(training), False: self._text(validation)}
        self.seed = seed
        torch.manual_seed(seed)
        made = self._called("make_model", self.tokens)
        model, optimizer = made if isinstance(made, tuple | list) and len(made) == 2 else (made, None)
        if not isinstance(model, nn.Module):
            raise TargetError(f"make_model returned {describe(made)}: it must return a module, or (module, optimizer)")
        self.model = model
        weights = list(model.parameters())
        self.is_ours = optimizer is None
        trainable = [weight for weight in weights if weight.requires_grad]
        if optimizer is None and trainable:
            optimizer = torch.optim.AdamW(trainable, LEARNING_RATE)
        self.optimizer: Any = optimizer
        self.before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        self.stream = self._stream()
        self.n_steps = 0
        return {
            "model": type(model).__name__,
            "n_weights": sum(weight.numel() for weight in weights),
            "optimizer": type(self.optimizer).__name__ + (f", learning rate {LEARNING_RATE:g}" if self.is_ours else ""),
            "evaluates": callable(getattr(self.target, "evaluate", None)),
        }

    def make_batches(self, training: bool, n_characters: int, seed: int) -> list[Batch]:
        """Batches of at least `n_characters` ids in all, or all that the pipeline makes of the text.

        They stay here for `measure`, in the place of those of the last call. `training` is what `make_batches` is
        told, and chooses the text.
        """
        torch.manual_seed(seed)
        ids = self.texts[training]
        self.batches, found, n = [], [], 0
        for batch in self._batches(ids, seed, training):
            arrays = read(batch)
            to_audit = self.tokens.to_audit
            found.append(Batch(to_audit(arrays.inputs), to_audit(arrays.labels), arrays.others))
            if found[-1].inputs.size > LARGEST_BATCH:
                shape = list(found[-1].inputs.shape)
                raise TargetError(f"make_batches made a batch {shape}: make it {LARGEST_BATCH:,} ids at most")
            self.batches.append(batch)
            n += found[-1].inputs.size
            if n >= n_characters:
                break
        if not found:
            raise TargetError(f"make_batches called with ids [{len(ids)}] and training={training} made no batch")
        return found

    def train(self, seconds: float) -> dict[str, Any]:
        """Train for some seconds, at least one step. Returns the steps so far, the losses, and the ids seen."""
        end, n_ids = time.monotonic() + seconds, 0
        losses: list[float] = []
        self.model.train()
        while not losses or time.monotonic() < end:
            batch = next(self.stream)
            loss, _ = self._loss_and_logits(batch)
            losses.append(loss.item())
            tensors, inputs, _ = tensor_names(batch)
            n_ids += tensors[inputs].numel()
            if not torch.isfinite(loss).all():
                break
            self._step(loss)
        return {"steps": self.n_steps, "losses": losses, "ids": n_ids}

    def measure(self, index: int, changes: Mapping[str, Array]) -> tuple[float, Array]:
        """The loss and the logits of a batch of `make_batches`, with other values for some of its tensors."""
        self.model.eval()
        of_target = {
            name: self.tokens.of_audit(values) if name in ("inputs", "labels") else values
            for name, values in changes.items()
        }
        with torch.no_grad():
            loss, logits = self._loss_and_logits(changed(self.batches[index], of_target))
        return loss.item(), self.tokens.columns_to_audit(array(logits))

    def unchanged(self) -> tuple[list[str], int]:
        """The names of the weights that training has not changed, and the number of all."""
        weights = dict(self.model.named_parameters())
        return [name for name, before in self.before.items() if torch.equal(weights[name], before)], len(weights)

    def evaluate(self, text: Array, seed: int) -> tuple[str, Any]:
        """Start the target's evaluation of a text with a stand-in for the model.

        Returns ("inputs", ids `[batch, seq_len]`), to be answered with `answer`, or ("value", the result).
        """
        torch.manual_seed(seed)
        ids = self._text(text)
        self.model.eval()
        self.stand_in = StandIn(
            self.model, self.n_logits, lambda: self._called("evaluate", self.model, ids, self.tokens)
        )
        return self._question(*self.stand_in.next())

    def answer(self, logits: Array) -> tuple[str, Any]:
        """Log-probabilities `[batch, seq_len, n_tokens]` for the last inputs; returns as `evaluate`."""
        of_target = np.ascontiguousarray(self.tokens.columns_of_audit(logits))
        return self._question(*self.stand_in.next(torch.from_numpy(of_target)))

    def _question(self, kind: str, value: Any) -> tuple[str, Any]:
        return kind, self.tokens.to_audit(value) if kind == "inputs" else value

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

    def _stream(self) -> Iterator[Any]:
        """Training batches without end: the iterable is made again, with another seed, when it ends."""
        seed = self.seed
        while True:
            batch = None
            for batch in self._batches(self.texts[True], seed, True):
                yield batch
            if batch is None:
                raise TargetError(f"make_batches called with ids [{len(self.texts[True])}] made no batch")
            seed += 1

    def _batches(self, ids: Tensor, seed: int, training: bool) -> Iterator[Any]:
        made = self._called("make_batches", ids.clone(), self.tokens, seed, training)
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
