"""The parts of a training in several processes: each one does what its base class does in one
process.

Every process draws the same windows and masks, and takes its share of them. DistributedDataParallel
averages the gradients; with FSDP (see `distributed.sharding`) the model does so itself.
"""

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad
from torch.utils._pytree import tree_leaves

from data.batch import Batch
from distributed.launch import n_started, rank
from distributed.meeting import Meeting
from distributed.processes import VERSIONS, Processes, naming_lost_processes
from distributed.saving import help_to_write, save_together
from distributed.sharding import load_whole, sharded_like
from distributed.substitutes import SUBSTITUTES
from training.callbacks.callback import Callback, Row, Weights
from training.callbacks.evaluation_budget import EvaluationBudget
from training.callbacks.history import History
from training.callbacks.knobs import KnobPanel, Request
from training.callbacks.recorder import Recorder
from training.checkpoint import Content, has_shards, is_sharded
from training.clock import TrainingClock
from training.compilation import Compiled
from training.evaluation import Evaluator, Outcomes, masked_outcomes
from training.learning_step import LearningStep
from training.loop import Now, Trainer
from training.marks import Mark
from training.muon import Muon, orthogonal_parts
from training.objective import Outcome, Sums
from training.optimizers import local
from training.schedule import Stage
from training.step import Update

STEPS_BETWEEN_REQUESTS = 8  # of the knobs, which the first process shares


class Loss(nn.Module):
    """A model with its objective as one module, because PyTorch parallelizes modules."""

    def __init__(self, update: Update):
        super().__init__()
        self.model = update.model
        self.update = update  # its objective may become a compiled one

    def forward(self, batch: Batch) -> Outcome:
        return self.update.objective.outcome(self.model, batch)


def part_of(batch: Batch, windows: slice) -> Batch:
    """The batch of some of the windows."""
    selected = positions_in(batch, windows)
    mask = batch.attention_mask
    begins = batch.begins
    seq_len = batch.inputs.shape[1]
    if begins is not None:  # documents of other windows become empty
        begins = begins.clamp(windows.start * seq_len, windows.stop * seq_len)
        begins = begins - windows.start * seq_len
    return batch._replace(
        inputs=batch.inputs[windows],
        positions=batch.positions[selected] - windows.start * seq_len,
        labels=batch.labels[selected],
        offsets=None,  # only the source reads them
        attention_mask=None if mask is None else mask[windows],
        begins=begins,
        extras={name: tensor[windows] for name, tensor in batch.extras.items()},
    )


def positions_in(batch: Batch, windows: slice) -> slice | torch.Tensor:
    """The index of the positions that lie in some of the windows."""
    if batch.positions.ndim == 2:
        return windows
    window = batch.positions // batch.inputs.shape[1]
    return (window >= windows.start) & (window < windows.stop)


class InAllProcesses:
    """A mixin that keeps the processes of the run."""

    def __init__(self, *args: Any, processes: Processes, **kwargs: Any):
        self.processes = processes
        super().__init__(*args, **kwargs)


class ParallelUpdate(InAllProcesses, Update):
    """Each process computes the gradients of its share of the windows; all make the same update."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.is_sharded = is_sharded(next(self.model.parameters()))
        self.module: Any = Loss(self)
        if not self.is_sharded:
            # the import takes a second
            from torch.nn.parallel import DistributedDataParallel

            # not in PyTorch 2.11
            is_new = (
                "forward_sync_buffers" in signature(DistributedDataParallel).parameters
            )
            # No training step changes buffers. Gradients are views of what is exchanged, which
            # saves two copies.
            sync_buffers = "forward_sync_buffers" if is_new else "broadcast_buffers"
            options: dict[str, Any] = {
                sync_buffers: False,
                "gradient_as_bucket_view": True,
            }
            self.module = DistributedDataParallel(self.module, **options)

    def forward_backward(
        self, batch: Batch, counts: Sums, is_last: bool = False
    ) -> Outcome:
        mine = part_of(batch, self.processes.share(len(batch.inputs)))
        # FSDP adds the gradients of each batch to the shards: whole ones might not fit
        with nullcontext() if is_last or self.is_sharded else self.module.no_sync():
            with torch.autocast(
                self.device.type, torch.bfloat16, enabled=self.autocast
            ):
                outcome = self.module(mine)
            # The average over processes is then their sum.
            (
                self.objective.normalized(outcome.sums, counts) * self.processes.n
            ).backward()
        return outcome.detached()

    def summed(self, sums: Sequence[Sums]) -> Sums:
        mine = super().summed(sums)
        totals = self.processes.sum(
            torch.stack([scalar.double() for scalar in mine.values()])
        )
        return {
            name: total.to(mine[name].dtype)
            for name, total in zip(mine, totals, strict=True)
        }

    def total_norm(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        norm = super().total_norm(gradients)
        return self.processes.sum(norm.square()).sqrt() if self.is_sharded else norm

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        (mine,) = state["rng_states"]
        numbers = {name: generator.tolist() for name, generator in mine.items()}
        rng_states = self.processes.of_all(numbers)
        for its in rng_states:
            for name, values in its.items():
                its[name] = torch.tensor(values, dtype=torch.uint8)
        return state | {"rng_states": rng_states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = state["rng_states"]
        rank = self.processes.rank
        # One at a time, in place: the device may not hold all whole tensors.
        for optimizer, its in zip(self.optimizers, state["optimizers"], strict=True):
            parameters = [
                p for group in optimizer.param_groups for p in group["params"]
            ]
            for number, values in its["state"].items():
                replace_by_shards(values, parameters[number])
        super().load_state_dict({**state, "rng_states": [saved[rank % len(saved)]]})
        # A seed from the next draw of a process that was saved, so that it depends on the run and
        # on the step.
        if rank >= len(saved):
            torch.manual_seed(int(torch.randint(2**62, ())) + rank)


def replace_by_shards(state: dict[str, Any], parameter: torch.Tensor) -> None:
    """Shard the tensors of a parameter's state as the parameter is. They become copies: the file
    that they are mapped from may be replaced."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            state[name] = (
                sharded_like(value, parameter) if value.shape else value.clone()
            )


class ParallelStep(InAllProcesses, LearningStep):
    """A source that learns sees the losses of all processes."""

    def observe(self, batch: Batch, losses: torch.Tensor) -> None:
        all_losses = losses.new_zeros(batch.positions.shape)
        mine = self.processes.share(len(batch.inputs))
        all_losses[positions_in(batch, mine)] = losses
        super().observe(batch, self.processes.sum(all_losses))
        # Sums on a GPU depend on their order, so what was learned may differ.
        for value in tree_leaves(self.source.state_dict()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.processes.copy(value)


class ParallelMuon(InAllProcesses, Muon):
    """Divides the matrices of each shape among the processes. Chunks of one matrix per process
    bound the memory."""

    def update(self, matrices: list[torch.Tensor], group: dict[str, Any]) -> None:
        n = self.processes.n
        update = self.update_sharded if is_sharded(matrices[0]) else self.update_whole
        for begin in range(0, len(matrices), n):
            update(matrices[begin : begin + n], group)

    def update_whole(self, chunk: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Each process computes the update of one matrix, and sends it to all."""
        rank = self.processes.rank
        own = chunk[min(rank, len(chunk) - 1)]
        directions = self.directions([own], group["momentum"])
        mine = orthogonal_parts(directions, self.parts_of(own)).contiguous()
        for owner, matrix in enumerate(chunk):
            update = self.processes.copy(
                mine if owner == rank else torch.empty_like(mine), owner
            )
            self.apply([matrix], update, group)

    def update_sharded(self, chunk: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Each process gathers the rows of one matrix, computes its update, and sends its rows to
        the others."""
        n = self.processes.n
        rows = chunk[0].shape[0]
        size = -(-rows // n)
        n_rows = local(chunk[0]).shape[0]
        blocks = pad(
            self.directions(chunk, group["momentum"]),
            (0, 0, 0, size - n_rows, 0, n - len(chunk)),
        )
        # one name, so that memory is freed
        blocks = self.processes.exchange(blocks).flatten(0, 1)[None, :rows]
        updates = orthogonal_parts(blocks, self.parts_of(chunk[0]))
        blocks = pad(updates[0], (0, 0, 0, n * size - rows)).contiguous()
        blocks = self.processes.exchange(blocks.unflatten(0, (n, size)))
        self.apply(chunk, blocks[: len(chunk), :n_rows], group)


class ParallelClock(InAllProcesses, TrainingClock):
    """Starts when all processes are ready, which may take long after compiling or saving."""

    def start(self) -> None:
        self.processes.of_all()
        super().start()


class ParallelTrainer(InAllProcesses, Trainer):
    """Takes the decisions of the first process."""

    # whether the last evaluation's weights, if they are the best, are on the disk
    is_best_written = True

    def now(self) -> Now:
        progress, *flags = self.processes.agree(*super().now())
        return Now(progress, *map(bool, flags))

    def evaluate(self, stage: Stage, progress: float) -> None:
        before = self.best_loss
        self.is_best_written = True
        super().evaluate(stage, progress)
        if not self.is_best_written:
            self.best_loss = before  # of the best weights that are written

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        load_whole(self.model, weights)


def parallel_evaluator(*args: Any, processes: Processes) -> Evaluator:
    """Each process evaluates its share of the windows."""
    return replace(Evaluator(*args), outcomes_of=partial(shared_outcomes, processes))


def shared_outcomes(
    processes: Processes,
    model: nn.Module,
    windows: torch.Tensor,
    masked: torch.Tensor,
    mask_token: int,
    attention_mask: torch.Tensor | None = None,
) -> Outcomes:
    """`masked_outcomes` for all windows, of which each process computes its share."""
    size = -(-len(windows) // processes.n)
    # Each process evaluates equally many windows, because every pass gathers the weights of a
    # sharded model.
    mine = torch.arange(processes.rank * size, (processes.rank + 1) * size).clamp(
        max=len(windows) - 1
    )
    numbers = None if attention_mask is None else attention_mask[mine]
    losses, correct = masked_outcomes(
        model, windows[mine], masked[mine], mask_token, numbers
    )
    n_masked = masked.sum(1).cpu()
    begin = int(n_masked[: mine[0]].sum())
    n = int(n_masked[processes.share(len(windows))].sum())
    results = torch.zeros(int(n_masked.sum()), 2, dtype=torch.float64)
    results[begin : begin + n] = torch.stack([losses, correct.double()], dim=1)[:n]
    processes.sum(results)
    return results[:, 0], results[:, 1] > 0


class ParallelCompiled(InAllProcesses, Compiled):
    """If one process cannot compile, none uses compiled code."""

    def agreed(self, reason: str) -> str:
        for number, its in enumerate(self.processes.of_all(reason)):
            if its:
                return f"process {number}: {its}"
        return ""


class ParallelEvaluationBudget(InAllProcesses, EvaluationBudget):
    """All evaluate as many windows as the first process has time for."""

    def agreed(self, seconds: float) -> float:
        return self.processes.from_first(seconds)


class ParallelKnobPanel(InAllProcesses, KnobPanel):
    """Takes the requests that the first process receives."""

    def request(self, trainer: Trainer) -> Request:
        if trainer.step % STEPS_BETWEEN_REQUESTS:
            return self.requested
        return self.processes.from_first(super().request(trainer))


class ParallelRecorder(InAllProcesses, Recorder):
    """Writes sharded weights together with the other processes, which have a `RowWriter`.

    Training waits until it is done. Weights that cannot be written are not kept for another
    attempt.
    """

    def writer(self, weights: Weights, state: dict[str, Any]) -> Callable[[Path], None]:
        if not has_shards(weights.values()):
            return super().writer(weights, state)
        return partial(save_together, Content.of(weights, state), self.processes)

    def evaluated(self, trainer: Any, row: Row, best: Weights | None) -> None:
        if best is None or not has_shards(best.values()):
            super().evaluated(trainer, row, best)
            return
        try:
            super().evaluated(trainer, row, best)
        finally:
            trainer.is_best_written = self.best is None
            self.best = None
            self.processes.from_first(trainer.is_best_written)

    def save(
        self, trainer: Any, weights: Weights, state: dict[str, Any], is_last: bool
    ) -> None:
        try:
            super().save(trainer, weights, state, is_last)
            if is_last and not trainer.is_best_written:
                raise OSError(errno.EIO, "the best weights could not be written")
        finally:
            if has_shards(weights.values()):
                self.processes.from_first(True)


class RowWriter(InAllProcesses, Callback):
    """Writes the rows of sharded weights that a process other than the first one has, into the
    files of the `ParallelRecorder`. It is the first callback, because later ones may exchange
    tensors."""

    def evaluated(self, trainer: Any, row: Row, best: Weights | None) -> None:
        if best is not None and has_shards(best.values()):
            trainer.is_best_written = help_to_write(best, self.processes)

    def save(
        self, trainer: Any, weights: Weights, state: dict[str, Any], is_last: bool
    ) -> None:
        if has_shards(weights.values()):
            tensors = Content.of(weights, state).tensors
            trainer.is_best_written = help_to_write(tensors, self.processes)


class ParallelHistory(InAllProcesses, History):
    """Keeps sharded weights together with the other processes."""

    def keep(self, trainer: Trainer, mark: Mark) -> None:
        weights = trainer.model.state_dict()
        is_shared = has_shards(weights.values())
        if not self.processes.is_first:
            if is_shared:
                help_to_write(weights, self.processes)
            return
        try:
            super().keep(trainer, mark)
        finally:
            if is_shared:
                self.processes.from_first(True)

    def write(self, content: Content, path: Path) -> None:
        if has_shards(content.tensors.values()):
            save_together(content, self.processes, path)
        else:
            super().write(content, path)


PARALLEL: dict[type, Callable[..., Any]] = {
    Update: ParallelUpdate,
    LearningStep: ParallelStep,
    Muon: ParallelMuon,
    TrainingClock: ParallelClock,
    Trainer: ParallelTrainer,
    Recorder: ParallelRecorder,
    RowWriter: RowWriter,
    History: ParallelHistory,
    Evaluator: parallel_evaluator,
    Compiled: ParallelCompiled,
    KnobPanel: ParallelKnobPanel,
    EvaluationBudget: ParallelEvaluationBudget,
}


@contextmanager
def together(values: Mapping[str, Any]) -> Iterator[Processes]:
    """This process among those that torchrun has started, all with the same `values` of the keys.

    Raises DifferentProcessError if their keys or versions differ, and StoppedError if another one
    ends early.
    """
    if n_started() == 1:
        yield Processes()
        return
    try:
        meeting = Meeting(rank(), n_started())
        with naming_lost_processes(), meeting.held():
            processes = Processes(rank(), n_started(), meeting)
            processes.compare(lambda: {**VERSIONS, **values})
            for kind, parallel in PARALLEL.items():
                SUBSTITUTES[kind] = partial(parallel, processes=processes)
            yield processes
    finally:
        SUBSTITUTES.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
