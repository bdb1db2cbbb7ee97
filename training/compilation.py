"""Compiles the objective of a training step, once for windows of all lengths."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from runs.errors import first_line
from training.objective import MaskedObjective
from training.optimizers import RowAdagrad, update_rows
from training.schedule import Stage
from training.step import TrainingStep
from training.switches.compiler import set_for_compiler

Report = Callable[[str], None]


class Compiled:
    """A compiled objective, which takes the place of the eager one in a training step. If compiling
    fails, training goes on in eager mode."""

    def __init__(self, objective: MaskedObjective):
        self.counts = objective.counts
        self.normalized = objective.normalized
        self.eager = objective.outcome
        self.outcome = self.eager

    def compile(
        self,
        step: TrainingStep,
        stages: Sequence[Stage],
        report: Report,
        around: AbstractContextManager[Any],
    ) -> None:
        """Compile, inside of `around`. No weight, optimizer or RNG state changes.

        All stages share the code, except those with one window per batch or one masked position per
        window, and those with another number of chunks of `ChunkedObjective`. So a batch of each
        stage runs here.
        """
        began = time.monotonic()
        report("compiling the step (training.compile=false skips this)")
        set_for_compiler(step.update.device, _leave_out(step.update.model))
        # Without the guard on global state, PyTorch does not compile again when the number of
        # threads changes.
        options: dict[str, Any] = {
            "guard_filter_fn": lambda guards: [
                g.guard_type != "GLOBAL_STATE" for g in guards
            ]
        }
        self.outcome = torch.compile(self.eager, dynamic=True, options=options)
        step.update.objective = self  # type: ignore[bad-assignment]
        reason = ""
        try:
            with around, without_side_effects(step):
                different = {(each.seq_len, each.masking_prob): each for each in stages}
                for stage in different.values():
                    batches = step.draw(stage)
                    step.update.forward_backward(batches[0], self.counts(batches))
                if step.update.device.type == "cuda":
                    compile_tables(step.update.optimizers)
        # training can do without anything that a missing or broken compiler raises
        except Exception as error:
            # torch.compile wraps the error of its backend in one whose first line gives no reason.
            reason = first_line(getattr(error, "inner_exception", error))
        if reason := self.agreed(reason):
            self.outcome = self.eager
            report(f"training without torch.compile: {reason}")
            return
        report(f"compiled in {time.monotonic() - began:.0f} s")

    def agreed(self, reason: str) -> str:
        """The reason why compiling has failed, empty if it has not; several processes share one."""
        return reason


@torch.no_grad()
def compile_tables(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Compile the updates of tables with dense gradients, which then take one kernel each."""
    update = compiled_update()
    for optimizer in optimizers:
        if not isinstance(optimizer, RowAdagrad):
            continue
        for table in optimizer.param_groups[0]["params"]:
            rows = torch.zeros_like(table)
            update(rows, rows.clone(), rows[:, 0].clone(), 0.0, rows.new_zeros(()))
        optimizer.update_rows = update


def compiled_update() -> Callable[..., None]:
    """`update_rows`, compiled for each table. The learning rate may change."""
    compiled = torch.compile(update_rows, dynamic=False)

    def update(
        rows: torch.Tensor,
        changes: torch.Tensor,
        square_sums: torch.Tensor,
        lr: float | torch.Tensor,
        found_inf: torch.Tensor,
    ) -> None:
        # a number would be a constant of the code
        rate = torch.full_like(found_inf, lr) if isinstance(lr, float) else lr
        compiled(rows, changes, square_sums, rate, found_inf)

    return update


@contextmanager
def without_side_effects(step: TrainingStep) -> Iterator[None]:
    """Restores the RNG states and clears the gradients on exit. Weights and optimizer states are
    not restored."""
    # which a user's source may change in place
    source = deepcopy(step.source.state_dict())
    device = step.update.device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        step.source.load_state_dict(source)
        step.update.model.zero_grad()


def _leave_out(model: nn.Module) -> bool:
    """Keep modules whose `can_compile` is False out of the compiled code; returns whether there are
    any."""
    left_out = [
        module for module in model.modules() if not getattr(module, "can_compile", True)
    ]
    # Not by a decorator, because `torch.compiler.disable` imports the compiler, which takes a
    # second.
    for module in left_out:
        if "forward" not in vars(module):
            module.forward = torch.compiler.disable(module.forward)
    return bool(left_out)
