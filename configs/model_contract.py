"""Checks of a model before it is trained, and the model that is sharded over several processes."""

from typing import Any

import torch
from torch import nn

from configs.branch import is_reference, is_sharded
from configs.keys import ConfigError
from configs.references import line_of
from data.protocol import WINDOW_LEN
from distributed.sharding import sharded


def sharded_network(c: Any) -> nn.Module:
    """The model of the config tree `c`, sharded over all processes."""
    model = sharded(lambda: c.model.architecture, c.torch_device)
    if is_reference(c.value_of("model.architecture")):
        check_complete_model(model, c, c.torch_device)
    return model


def check_own_model(model: nn.Module, c: Any) -> None:
    """Check a user's model for the config tree `c`; a sharded one is checked when it is complete.
    Raises ConfigError."""
    if not is_sharded(c):
        device = torch.device("cpu")
        check_complete_model(model.to(device), c, device)


def check_complete_model(model: nn.Module, c: Any, device: torch.device) -> None:
    check_length(model, c)
    name = c.name_of("model.architecture")
    check_contract(model, name, longest_windows(c), c.model.n_tokens, device)


def check_length(model: nn.Module, c: Any) -> None:
    """Raise ConfigError if a model cannot read the longest windows of the config tree `c`."""
    longest = longest_windows(c)
    max_seq_len: Any = getattr(model, "max_seq_len", longest)
    if longest > max_seq_len:
        too_long = f"training.stages has windows of {longest:,}: shorten them"
        if longest == WINDOW_LEN:
            too_long = f"the validation of every model has windows of {longest:,}"
        raise ConfigError(
            f"{c.name_of('model.architecture')}: it reads at most {max_seq_len:,} tokens, but {too_long}"
        )


def longest_windows(c: Any) -> int:
    """The length of the longest windows; the validation has windows of its own length."""
    return max(WINDOW_LEN, *(row["seq_len"] for row in c.training.stages))


def check_contract(
    model: nn.Module, name: str, seq_len: int, n_tokens: int, device: torch.device
) -> None:
    """Raise ConfigError if a model cannot be called as the training step calls it, with windows of
    this length; uses no random numbers."""
    inputs = torch.zeros(2, seq_len, dtype=torch.int64, device=device)
    last = inputs.numel() - 1
    calls = [[1, seq_len, last], [[1, seq_len - 1], [seq_len, last]]]
    for call in calls:
        positions = torch.tensor(call, device=device)
        sizes = list(positions.shape)
        expected = [*sizes, n_tokens]
        contract = (
            f"called with inputs [2, {seq_len}] and positions {sizes},"
            f" it must return logits {expected}"
        )
        try:
            with (
                torch.random.fork_rng([device] if device.type == "cuda" else []),
                torch.no_grad(),
            ):
                shape = list(model(inputs, positions).shape)
        except Exception as error:  # whatever a user's model raises
            reason = line_of(error) or f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name}: {contract}, but raises {reason}") from error
        if shape != expected:
            raise ConfigError(f"{name}: {contract}, not {shape}")
