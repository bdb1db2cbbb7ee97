"""The optimizers: Muon for the layers' matrices with AdamW for the rest, AdamW alone, or labml_nn's Noam."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer

from training.muon import Muon


def muon(
    model: nn.Module, *, learning_rate: float, muon_learning_rate: float, muon_momentum: float, weight_decay: float
) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the encoder's layers, AdamW for all other parameters.

    Muon makes every step of a matrix orthogonal, which suits maps between hidden states; embeddings, norms,
    biases and the head are not such maps. The model must have its layers in `encoder.layers`.
    """
    matrices = [p for p in model.encoder.layers.parameters() if p.ndim == 2]  # type: ignore[union-attr]
    own = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in own]
    return [
        _adamw(others, learning_rate, weight_decay),
        Muon(matrices, lr=muon_learning_rate, momentum=muon_momentum, weight_decay=weight_decay),
    ]


def adamw(model: nn.Module, *, learning_rate: float, weight_decay: float) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019) for everything."""
    return [_adamw(list(model.parameters()), learning_rate, weight_decay)]


def noam(model: nn.Module, *, learning_rate: float, d_model: int) -> list[Optimizer]:
    """labml_nn's Noam with its own defaults (2,000 warm-up steps), as in the annotated experiment.

    lr = learning_rate * d_model^-0.5 * min(step^-0.5, step * 2000^-1.5)   (Vaswani et al. 2017)
    """
    from labml_nn.optimizers import WeightDecay
    from labml_nn.optimizers.noam import Noam

    return [
        Noam(
            model.parameters(),
            lr=learning_rate,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=WeightDecay(0.0, True, False),
            warmup=2_000,
            d_model=d_model,
        )
    ]


def _adamw(parameters: list[nn.Parameter], learning_rate: float, weight_decay: float) -> Optimizer:
    # Weight decay draws weights to zero: right for matrices, wrong for the scales of norms and for biases.
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.98), fused=fused)


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every learning rate to `factor` times its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])
            group["lr"] = group["peak_lr"] * factor


def learning_rate_of(optimizers: Sequence[Optimizer]) -> float:
    """The learning rate in force of the first optimizer, the one that the embedding is trained with."""
    optimizer = optimizers[0]
    group = optimizer.param_groups[0]
    state = optimizer.state.get(group["params"][0])
    if state and hasattr(optimizer, "get_lr"):  # Noam computes its own from the step
        return optimizer.get_lr(state, group)
    return group["lr"]


@torch.no_grad()
def weight_norm(model: nn.Module) -> float:
    """The root mean square of all weights: one number that shows whether they grow."""
    sizes = [parameter.float().square().sum() for parameter in model.parameters()]
    return (torch.stack(sizes).sum() / sum(p.numel() for p in model.parameters())).sqrt().item()
