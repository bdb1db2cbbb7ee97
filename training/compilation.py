"""Compiles the objective of a training step, once for each shape of a batch."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from data import corpus
from data.masking import MaskedBatch
from runs.callbacks import Callback
from runs.locks import filling
from training.objective import MaskedObjective, Outcome
from training.schedule import Stage
from training.step import TrainingStep

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # names the folder in which PyTorch keeps compiled code


class Compiled:
    """An objective whose `outcome` is compiled. If compiling fails, `give_up` goes back to eager mode."""

    def __init__(self, objective: MaskedObjective):
        self.counts, self.loss = objective.counts, objective.loss
        self.eager = objective.outcome
        self.compiled: Callable[..., Outcome] = torch.compile(objective.outcome, dynamic=False)

    def outcome(self, model: nn.Module, batch: MaskedBatch) -> Outcome:
        return self.compiled(model, batch)

    def give_up(self) -> None:
        self.compiled = self.eager


class Compilation(Callback):
    """Compiles for all shapes of the schedule before the first step, and for a new shape before its first step."""

    def __init__(self, objective: Compiled, step: TrainingStep, stages: Sequence[Stage]):
        self.objective, self.step, self.stages = objective, step, stages
        self.shapes: set[tuple[int, float]] = set()  # of stages that are ready; empty if compiling has failed

    def begin(self, trainer: Any) -> None:
        if trainer.progress() < 1:
            self.compile(self.stages, trainer.report)

    def adjust(self, trainer: Any, stage: Stage, factor: float) -> tuple[Stage, float]:
        if self.shapes and stage.shape not in self.shapes:  # a user has changed the masking rate
            with trainer.clock.stopped():
                self.compile([stage], trainer.report)
        return stage, factor

    def compile(self, stages: Sequence[Stage], report: Callable[[str], None]) -> None:
        """Compile for the shapes of some stages. Training goes on if that fails.

        Weights, optimizers and RNG states are unchanged afterwards.
        """
        began = time.monotonic()
        report("compiling the training step: half a minute or more (training.compile=false skips this)")
        shapes = {stage.shape: stage for stage in stages}
        # One compilation per shape is intended, not a sign of trouble.
        limit = max(torch._dynamo.config.recompile_limit, 2 * len(self.shapes | set(shapes)))
        torch._dynamo.config.recompile_limit = limit
        torch._dynamo.config.nested_graph_breaks = True  # one graph after the lookup of n-grams, not one per function
        # Splitting the graph lets the exchange of gradients overlap with computing, for which a CPU has no cores left.
        torch._dynamo.config.optimize_ddp = self.step.update.device.type != "cpu"
        _leave_out(self.step.update.model)
        reason = ""
        try:
            with _kept_code(report), without_side_effects(self.step):
                for stage in shapes.values():
                    batches = self.step.draw(stage)
                    self.step.update.backward(batches[0], self.objective.counts(batches))
        except Exception as error:  # training can do without anything that a missing or broken compiler raises
            # torch.compile wraps the error of its backend in one whose first line gives no reason.
            reason = first_line(getattr(error, "inner_exception", error))
        if reason := self.agreed(reason):
            self.objective.give_up()
            self.shapes = set()
            report(f"training without torch.compile: {reason}")
            return
        self.shapes |= set(shapes)
        report(f"compiled for {len(shapes)} shapes in {time.monotonic() - began:.0f} s")

    def agreed(self, reason: str) -> str:
        """The reason why compiling has failed, empty if it has not; several processes share one."""
        return reason


@contextmanager
def without_side_effects(step: TrainingStep) -> Iterator[None]:
    """Restores the RNG states and clears the gradients on exit. Weights and optimizer states are not restored."""
    windows, masker, device = step.windows.state_dict(), step.masker.state_dict(), step.update.device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        step.windows.load_state_dict(windows)
        step.masker.load_state_dict(masker)
        step.update.model.zero_grad()


def _leave_out(model: nn.Module) -> None:
    """Keep modules with `can_compile = False` out of the compiled code.

    Done here and not by a decorator, because `torch.compiler.disable` imports the compiler, which takes a second.
    """
    for module in model.modules():
        if not getattr(module, "can_compile", True) and "forward" not in vars(module):
            module.forward = torch.compiler.disable(module.forward)


@contextmanager
def _kept_code(report: Callable[[str], None]) -> Iterator[None]:
    """Keeps compiled code beside the corpus between runs, unless the environment names another folder."""
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # the import takes seconds

    folder = (corpus.CACHE / "compiled").resolve()
    with ExitStack() as stack:
        if os.environ.get(CACHE_VARIABLE, default_cache_dir()) in (default_cache_dir(), str(folder)):
            try:
                stack.enter_context(filling(folder, report))
                os.environ[CACHE_VARIABLE] = str(folder)
            except OSError:  # the cache cannot be written
                os.environ[CACHE_VARIABLE] = default_cache_dir()
        yield


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or else its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
