"""Runs optimizers on devices where reading whether a step is finite would synchronize."""

from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from training.optimizers import local


@torch.no_grad()
def optimize_or_undo(optimizers: Sequence[Optimizer], is_finite: torch.Tensor) -> None:
    """Run the optimizers, where reading `is_finite` would synchronize. Those that know `found_inf`
    (PyTorch's fused ones, Muon and RowAdagrad) skip a step that is not finite. The changes of
    others are undone with copies, which cost memory and time."""
    skipped = 1.0 - is_finite.float()
    for optimizer in optimizers:
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            optimizer.found_inf = skipped  # type: ignore[attr-defined]
            optimizer.step()
            continue
        before = {key: tensor.clone() for key, tensor in changed_by(optimizer).items()}
        optimizer.step()
        for key, tensor in changed_by(optimizer).items():
            # a state that the step has created starts at zero
            old = before.get(key, torch.zeros_like(tensor))
            tensor.copy_(torch.where(is_finite, tensor, old))


def changed_by(optimizer: Optimizer) -> dict[tuple[int, str], torch.Tensor]:
    """The weights and the states that a step of an optimizer changes; of sharded ones, the part of
    this process."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    changed = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        tensors = {"": parameter, **optimizer.state.get(parameter, {})}
        for name, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor):
                changed[id(parameter), name] = local(tensor)

    return changed
