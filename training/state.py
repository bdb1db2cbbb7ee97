"""All that decides how a training goes on: taken from a trainer, and given back to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from runs.knobs import Knobs
from runs.run_folder import RunFolder
from training.step import StepSums

if TYPE_CHECKING:
    from training.loop import Trainer


def state_of(trainer: Trainer, run: RunFolder) -> dict[str, Any]:
    """Where a training stands, weights aside: all that decides what comes, and how long the run's files are."""
    step = trainer.training_step
    return {
        "step": trainer.step,
        "chars": trainer.chars,
        "seconds": trainer.clock.seconds,
        "wall_seconds": trainer.wall_seconds,
        "n_evaluations": trainer.n_evaluations,
        "best_loss": trainer.best_loss,
        "has_warned": trainer.has_warned,
        "chars_at_evaluation": trainer.chars_at_evaluation,
        "seconds_at_evaluation": trainer.seconds_at_evaluation,
        "sums": list(trainer.sums),
        "skipped_in_a_row": step.skipped_in_a_row,
        "optimizers": [optimizer.state_dict() for optimizer in step.optimizers],
        "windows": step.windows.state_dict(),
        "masker": step.masker.state_dict(),
        "generators": _generators(trainer.device),
        "knobs": trainer.knobs.as_dict(),
        "is_changed_by_hand": trainer.is_changed_by_hand,
        "environment": environment(trainer.device, trainer.compile),
        "config": run.config(),
        "corpus": run.corpus(),
        "characters": "".join(trainer.vocabulary.characters),
        "sizes": run.sizes(),
    }


def restore(trainer: Trainer, state: Mapping[str, Any]) -> None:
    """Let a trainer go on from where `state_of` was taken; the weights are loaded beside it."""
    trainer.step, trainer.chars, trainer.wall_seconds = state["step"], state["chars"], state["wall_seconds"]
    trainer.clock.set(state["seconds"])
    trainer.best_loss, trainer.has_warned = state["best_loss"], state["has_warned"]
    # With a longer budget the evaluations lie farther apart, and fewer of them are behind.
    trainer.n_evaluations = min(state["n_evaluations"], trainer.schedule.evaluations_due(trainer.progress()))
    trainer.chars_at_evaluation = state["chars_at_evaluation"]
    trainer.seconds_at_evaluation = state["seconds_at_evaluation"]
    trainer.sums = StepSums(*(total.to(trainer.device) for total in state["sums"]))
    step = trainer.training_step
    step.skipped_in_a_row = state["skipped_in_a_row"].to(trainer.device)
    for optimizer, its_state in zip(step.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(its_state)
    step.windows.load_state_dict(state["windows"])
    step.masker.load_state_dict(state["masker"])
    _set_generators(state["generators"], trainer.device)
    trainer.knobs, trainer.is_changed_by_hand = Knobs(**state["knobs"]), state["is_changed_by_hand"]
    trainer.wanted_knobs = state["knobs"]


def environment(device: torch.device, compile: bool) -> dict[str, Any]:
    """What the digits depend on beside a run's own state: a resumed run is the same, bit for bit, where these are."""
    return {
        "torch": str(torch.__version__),  # a class of its own, which is not plain data
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "training.compile": compile,
    }


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    """PyTorch's own generators, which dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
