"""A model that answers with other logits: the target's own model, whose logits the audit replaces.

Evaluation code calls its model in its own way, and takes the loss or the logits from wherever its model returns them.
So the call goes through the target's model, and a forward hook replaces the logits where they are computed.
"""

import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

import torch
from torch import Tensor, nn

from auditing.errors import TargetError, describe
from auditing.pipelines.batch import INPUTS

IMPOSSIBLE = -1e4  # as a logit: finite, so that sums with a weight of 0 stay finite


class StandIn:
    """Runs evaluation code in a thread, and stops it at each call of the model until its logits arrive."""

    def __init__(self, model: nn.Module, n_logits: int, evaluate: Callable[[], Any]):
        """`evaluate` calls `model`, whose logits have `n_logits` columns."""
        self.model, self.n_logits, self.run = model, n_logits, evaluate
        self.questions: Queue[tuple[str, Any]] = Queue()
        self.answers: Queue[Tensor] = Queue()
        self.inputs: Tensor | None = None
        self.positions: Tensor | None = None
        threading.Thread(target=self._evaluate, daemon=True).start()

    def next(self, logits: Tensor | None = None) -> tuple[str, Any]:
        """Give the logits for the last inputs; returns ("inputs", ids `[batch, seq_len]`) or ("value", a number).

        Raises TargetError if the evaluation fails.
        """
        if logits is not None:
            self.answers.put(logits)
        kind, value = self.questions.get()
        if kind == "error":
            raise value
        return kind, value

    def _evaluate(self) -> None:
        hooks = [self.model.register_forward_pre_hook(self._see, with_kwargs=True)]
        try:
            hooks += [self._decoder().register_forward_hook(self._replace)]
            value = self.run()
            number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise TargetError(f"evaluate returned {describe(value)}: it must return a number")
            self.questions.put(("value", float(number)))
        except BaseException as error:
            known = error if isinstance(error, TargetError) else TargetError(f"evaluate failed: {error}")
            self.questions.put(("error", known))
        finally:
            for hook in hooks:
                hook.remove()

    def _decoder(self) -> nn.Module:
        """The part of the model that returns the logits: the last one with as many columns.

        Found by an evaluation that is stopped once the model has been called.
        """
        found: list[nn.Module] = []
        hooks = [
            part.register_forward_hook(lambda part, _, output: found.append(part) if self._fits(output) else None)
            for part in self.model.modules()
        ]
        hooks.append(self.model.register_forward_hook(_stop))
        state = torch.get_rng_state()
        try:
            self.run()
        except _Called:
            torch.set_rng_state(state)
        finally:
            for hook in hooks:
                hook.remove()
        if not found:
            raise TargetError(f"evaluate did not call the model, or no part of it returned {self.n_logits} logits")
        return found[-1]

    def _fits(self, output: Any) -> bool:
        return isinstance(output, Tensor) and output.dim() >= 2 and output.shape[-1] == self.n_logits

    def _see(self, model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Remember the ids that the model is called with, and the positions to predict if there are any."""
        first = [named[name] for name in INPUTS if name in named]
        given = [value for value in [*first, *arguments, *named.values()] if isinstance(value, Tensor)]
        whole = [value for value in given if not value.is_floating_point() and value.dtype != torch.bool]
        self.inputs = next((value for value in whole if value.dim() == 2), None)
        self.positions = next((value for value in whole if value.dim() == 1), None)

    def _replace(self, part: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        if self.inputs is None:
            raise TargetError("evaluate called the model without ids [batch, seq_len]")
        self.questions.put(("inputs", self.inputs.cpu().numpy()))
        return like(self.answers.get(), output, self.positions)


class _Called(BaseException):
    """The model was called. Not an Exception, so the target does not catch it."""


def _stop(*_: Any) -> None:
    raise _Called


def like(logits: Tensor, output: Tensor, positions: Tensor | None) -> Tensor:
    """Logits `[batch, seq_len, n]` in the shape, type and place of the model's own; extra columns are impossible.

    The model's own may be `[seq_len, batch, n_logits]`, flat, or those of `positions` in the flattened ids. Raises
    TargetError if they are something else.
    """
    batch, seq_len, n_tokens = logits.shape
    if tuple(output.shape[:2]) == (seq_len, batch) and output.dim() == 3 and batch != seq_len:
        logits = logits.transpose(0, 1)
    flat, n_rows = logits.flatten(0, 1), output[..., 0].numel()
    if n_rows != len(flat):
        if positions is None or len(positions) != n_rows:
            raise TargetError(f"the model returned {describe(output)} for ids {[batch, seq_len]}")
        flat = flat[positions.cpu()]
    wide = torch.full((n_rows, output.shape[-1]), IMPOSSIBLE)
    wide[:, :n_tokens] = flat.float()
    return wide.view(output.shape).to(output)
