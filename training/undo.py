"""Steps that are not finite, on devices where reading a value would synchronize: optimizers run, and change nothing."""

from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from training.muon import local


@torch.no_grad()
def optimize_or_undo(optimizers: Sequence[Optimizer], is_finite: torch.Tensor) -> None:
    """Run the optimizers. Those that know `found_inf`, as PyTorch's fused ones do, skip a step that is not finite; so
    tables need no copies, which would take most of a step. What any other optimizer changes is put back."""
    skipped = 1.0 - is_finite.float()
    for optimizer in optimizers:
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            optimizer.found_inf = skipped  # type: ignore[attr-defined]
            optimizer.step()
            continue
        before = {key: tensor.clone() for key, tensor in changed_by(optimizer).items()}
        optimizer.step()
        for key, tensor in changed_by(optimizer).items():  # a state that the step has created starts at zero
            tensor.copy_(torch.where(is_finite, tensor, before.get(key, torch.zeros_like(tensor))))


def changed_by(optimizer: Optimizer) -> dict[tuple[int, str], torch.Tensor]:
    """The weights and the states that a step of an optimizer changes; of sharded ones, the part of this process."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    named = [(id(p), {"": p, **optimizer.state.get(p, {})}) for p in parameters]  # the parts' ids would not last
    return {(i, name): local(t) for i, each in named for name, t in each.items() if isinstance(t, torch.Tensor)}
