"""A stand-in for a model: its logits become known ones, wherever code that calls the model takes them from.

The call goes through the target's own model, and forward hooks replace the logits where they are computed. The known
logits depend on the id at their position only, so they are a table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from auditing.pipelines.target_batch import INPUTS


@contextmanager
def stand_in(model: nn.Module, table: Tensor) -> Iterator[list[Tensor]]:
    """While this is open, the model's logits at id i are `table[i]`, of a table `[n_tokens, n_logits]`.

    Yields a list to which each call of the model adds the ids that it was called with.
    """
    seen: list[Tensor] = []
    positions: list[Tensor] = []  # those of the last call that are to be predicted, if it names them

    def see(model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        first = [named[name] for name in INPUTS if name in named]
        given = [value for value in [*first, *arguments, *named.values()] if isinstance(value, Tensor)]
        whole = [value.cpu() for value in given if not value.is_floating_point() and value.dtype != torch.bool]
        seen.extend([value for value in whole if value.dim() == 2][:1])
        positions[:] = [value for value in whole if value.dim() == 1][:1]

    def answer(part: nn.Module, arguments: Any, output: Any) -> Tensor | None:
        """The known logits in the shape, type and place of the model's own; None leaves another output as it is."""
        is_logits = isinstance(output, Tensor) and output.dim() >= 2 and output.shape[-1] == table.shape[1]
        if not seen or not is_logits or not output.is_floating_point():
            return None
        ids = seen[-1].clamp(0, len(table) - 1)
        if output.shape[:-1] == ids.T.shape and output.shape[:-1] != ids.shape:
            ids = ids.T
        n_rows = output.shape[:-1].numel()
        if n_rows != ids.numel() and positions and len(positions[0]) == n_rows:
            ids = ids.flatten()[positions[0]]
        return table[ids].view(output.shape).to(output) if n_rows == ids.numel() else None

    hooks = [model.register_forward_pre_hook(see, with_kwargs=True)]
    hooks += [part.register_forward_hook(answer) for part in model.modules()]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
