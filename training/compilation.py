"""Prepares training steps: compiles them for each shape, and has them recorded as CUDA graphs."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from data import corpus
from runs.files import filling
from training.objective import masked_loss
from training.recording import RecordedUpdate, can_record
from training.schedule import Stage
from training.step import TrainingStep

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # names the folder in which PyTorch keeps compiled code


class Compilation:
    """Compiles a training step for each shape and records it; falls back to eager steps if that does not work."""

    def __init__(self, step: TrainingStep, *, is_wanted: bool = True, cuda_graph: bool = True):
        self.step = step
        self.is_wanted = is_wanted
        self.cuda_graph = cuda_graph
        self.recorded: RecordedUpdate | None = None
        self.compiled: set[tuple[int, float]] = set()  # shapes of stages; empty if nothing is compiled

    def is_ready(self, stage: Stage) -> bool:
        """Whether the next step of this stage needs neither compiling nor recording first."""
        return self._is_compiled(stage) and not (self.recorded and self.recorded.is_due(stage))

    def prepare(self, stage: Stage, report: Callable[[str], None]) -> None:
        """Compile or record, whichever the next step of this stage needs. Training goes on if it fails."""
        if not self._is_compiled(stage):
            self.compile([stage], report)
            return
        assert self.recorded is not None
        try:
            self.recorded.record(stage)
        except Exception as error:  # training can do without anything that PyTorch cannot record
            self.cuda_graph, self.recorded, self.step.run_update = False, None, self.step.update
            report(f"training without CUDA graphs: {_first_line(error.__context__ or error)}")

    def compile(self, stages: Sequence[Stage], report: Callable[[str], None]) -> None:
        """Compile for the shapes of all stages, if that is wanted. Training goes on if it fails.

        Weights, optimizers and RNG states are unchanged afterwards.
        """
        if not self.is_wanted:
            return
        began = time.monotonic()
        report("compiling the training step: half a minute or more (training.compile=false skips this)")
        shapes = {stage.shape: stage for stage in stages}
        # One compilation per shape is intended, not a sign of trouble.
        limit = max(torch._dynamo.config.recompile_limit, 2 * len(self.compiled | set(shapes)))
        torch._dynamo.config.recompile_limit = limit
        torch._dynamo.config.nested_graph_breaks = True  # one graph after the lookup of n-grams, not one per function
        # Splitting the graph lets the exchange of gradients overlap with computing, for which a CPU has no cores left.
        torch._dynamo.config.optimize_ddp = self.step.device.type != "cpu"
        _leave_out(self.step.model)
        self.step.loss_function = torch.compile(masked_loss, dynamic=False)
        reason = ""
        try:
            with _kept_code(report), self.step.without_side_effects():
                for stage in shapes.values():
                    batch = self.step.draw(stage)[0]
                    self.step.backward(batch, torch.ones_like(self.step.skipped_in_a_row))
        except Exception as error:  # training can do without anything that a missing or broken compiler raises
            # torch.compile wraps the error of its backend in one whose first line gives no reason.
            reason = _first_line(getattr(error, "inner_exception", error))
        # Processes that share a folder of compiled code compile one after the other. Training begins, and the clock
        # starts, when all are ready. If one of them fails, none uses compiled code.
        reasons = self.step.processes.of_all(reason)
        if any(reasons):
            self.step.loss_function, self.step.run_update = masked_loss, self.step.update
            self.compiled, self.recorded = set(), None
            rank, reason = next((rank, reason) for rank, reason in enumerate(reasons) if reason)
            report(f"training without torch.compile: {f'process {rank}: ' if rank else ''}{reason}")
            return
        self.compiled |= set(shapes)
        report(f"compiled for {len(shapes)} shapes in {time.monotonic() - began:.0f} s")
        if self.cuda_graph and self.recorded is None and self.step.device.type == "cuda" and can_record(self.step):
            self.recorded = self.step.run_update = RecordedUpdate(self.step)

    def _is_compiled(self, stage: Stage) -> bool:
        return not self.compiled or stage.shape in self.compiled


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


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
