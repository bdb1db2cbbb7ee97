"""Builds the parts of a run with causal batches: `objective.causal_until` and `objective.shifted`."""

from functools import partial
from typing import Any

from configs.keys import ConfigError
from data.causal_windows import CausalWindows
from data.masked_windows import MaskedWindows
from model.causal import CausalEncoder, CausalModel


def causal_model(root: Any) -> tuple[Any, Any]:
    """The classes of the encoder and the model; `root` is the config tree. Raises ConfigError."""
    key = "objective.causal_until"
    if not root.objective.causal_until:
        key = "objective.shifted"
    if root.objective.pairs:
        raise ConfigError(f"{key} and objective.{root.objective.pairs}: choose one")
    if root.model.ngrams:
        raise ConfigError(f"{key}: n-grams see later characters: use model.ngrams=0")
    if root.data.is_packed:
        raise ConfigError(f"{key} keeps no documents apart: use data.windows=anywhere")
    return CausalEncoder, partial(CausalModel, is_shifted=root.objective.shifted)


def causal_source(root: Any, masked: MaskedWindows) -> CausalWindows:
    c = root.objective
    return CausalWindows(masked, c.causal_until, c.causal_share)
