"""The contract between a model and the training step."""

import torch
from torch import nn

from configs.keys import ConfigError


def check_contract(model: nn.Module, n_tokens: int, device: torch.device) -> None:
    """Raise ConfigError if a model cannot be called as the training step calls it; uses no random numbers."""
    inputs = torch.zeros(2, 8, dtype=torch.int64, device=device)
    calls = [torch.tensor([1, 9, 15], device=device)]
    if getattr(model, "takes_positions_per_window", False):
        calls.append(torch.tensor([[1, 6], [9, 15]], device=device))
    for positions in calls:
        n, sizes = positions.numel(), list(positions.shape)
        contract = f"called with inputs [2, 8] and positions {sizes}, it must return logits [{n}, {n_tokens}]"
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
                shape = list(model(inputs, positions).shape)
        except Exception as error:  # whatever a user's model raises
            raise ConfigError(f"model.architecture: {contract}, but raises {type(error).__name__}: {error}") from error
        if shape != [n, n_tokens]:
            raise ConfigError(f"model.architecture: {contract}, not {shape}")
