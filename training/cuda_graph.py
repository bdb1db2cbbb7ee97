"""Training steps recorded as CUDA graphs: a graph launches the whole update at once.

A GPU computes a small model's step faster than Python can launch its hundreds of kernels. Replaying
a graph needs one launch. A wrong graph would train wrongly in silence, so each one is checked
against eager steps before it is used.
"""

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from data.batch import Batch
from data.masking import n_masked_in
from runs.errors import first_line
from training.callbacks.callback import Callback
from training.compilation import without_side_effects
from training.loop import Trainer
from training.objective import Losses, Sums
from training.schedule import Stage
from training.step import TrainingStep, Update

# per shape before recording: they create the optimizer states, which must lie outside the graph
EAGER_STEPS = 3
EAGER_REPEATS = 3  # that a replayed step is compared with
TOLERANCE = 1e-6  # relative difference between a replayed step and an eager one
# Larger tolerances, where eager steps differ from each other: for losses and optimizer states, and
# for changes of weights. Muon in bfloat16 turns noise of 1e-6 in a gradient into 1e-2 in an update.
# A wrong learning rate changes an update by 0.25 or more.
LARGEST_NOISE, LARGEST_NOISE_OF_UPDATES = 1e-3, 0.1
Batches = Sequence[Batch]
# the length of a batch's windows, and the number of its positions: all batches have the same
Shape = tuple[int, int]
Result = tuple[Sums, Losses]
Limited = list[tuple[torch.Tensor, float]]  # tensors, each with its largest noise


def can_record(update: Update) -> bool:
    """Whether the optimizers do all of their work on the device: PyTorch's `capturable` ones and
    Folio's Muon.

    Others compute learning rates in Python, and a graph would repeat the rates that it was recorded
    with.
    """
    return all("capturable" in optimizer.defaults for optimizer in update.optimizers)


class CudaGraphs(Callback):
    """Runs an update eagerly until it is recorded, then replays it. As a callback, it records
    before the next step.

    Each number of masked positions has a graph of its own. Graphs of windows of another length are
    dropped. A graph reads and writes the addresses that it was recorded with. So batches are copied
    into the tensors of the recorded batches, and learning rates are tensors on the device, in eager
    steps too.
    """

    def __init__(self, update: Update):
        self.update = update
        self.is_given_up = False
        self._rates = [torch.zeros((), device=update.device) for _ in self._groups()]
        self._n_eager: Counter[Shape] = Counter()
        self._recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Batches, Result]] = {}

    def __call__(self, batches: Batches) -> Result:
        if self.is_given_up:
            return self.update(batches)
        shape = _shape(batches)
        if any(seq_len != shape[0] for seq_len, _ in self._n_eager):
            self._n_eager.clear()
            self._recorded.clear()
        if shape in self._recorded:
            return self._replay(batches)
        self._n_eager[shape] += 1
        return self._eager(batches)

    def begin(self, trainer: Trainer) -> None:
        """Move optimizer states to the device: PyTorch loads step counts to the CPU if an optimizer
        is not fused."""
        for state in (
            state for optimizer in self.update.optimizers for state in optimizer.state.values()
        ):
            state |= {name: value.to(self.update.device) for name, value in state.items()}

    def adjust(self, trainer: Trainer, stage: Stage, factor: float) -> tuple[Stage, float]:
        if self.is_due(trainer.training_step, stage):
            with trainer.clock.stopped():
                self.record(trainer.training_step, stage, trainer.report)
        return stage, factor

    def is_due(self, step: TrainingStep, stage: Stage) -> bool:
        """Whether it is time to record the update of a stage: it has had its eager steps."""
        shape = shape_of(step, stage)
        return (
            not self.is_given_up
            and shape not in self._recorded
            and self._n_eager[shape] >= EAGER_STEPS
        )

    def record(self, step: TrainingStep, stage: Stage, report: Callable[[str], None]) -> None:
        """Record the update of a stage, and check it. If that fails, all updates are eager from now
        on."""
        try:
            with without_side_effects(step):
                self._record(shape_of(step, stage), lambda: step.draw(stage))
        except Exception as error:  # training can do without anything that PyTorch cannot record
            self.is_given_up = True
            self._recorded.clear()
            report(f"training without CUDA graphs: {first_line(error.__context__ or error)}")

    def _record(self, shape: Shape, draw: Callable[[], Batches]) -> None:
        """Record an update of the batches that `draw` returns, and check it. It changes no weight
        and no state.

        Raises RuntimeError if PyTorch cannot record it, or if a replayed step differs from an eager
        one.
        """
        states = [
            {key: dict(value) for key, value in o.state.items()} for o in self.update.optimizers
        ]
        # leftovers of eager steps would tie gradients to a stream other than the recorded one
        gc.collect()
        try:
            batches = draw()
            if _shape(batches) != shape:
                raise RuntimeError("the masker's shapes vary")
            graph = torch.cuda.CUDAGraph()
            # PyTorch records on the device of the current stream, and leaves its own current if
            # recording fails.
            stream = torch.cuda.stream(torch.cuda.current_stream(self.update.device))
            # Graphs take turns, so they share a pool, freed with the last of them. Other threads
            # may pin memory.
            pool = next((other.pool() for other, *_ in self._recorded.values()), None)
            options: dict[str, Any] = {"pool": pool, "capture_error_mode": "thread_local"}
            with self._rates_on_device(), stream, torch.cuda.graph(graph, **options):
                result = self.update(batches)
            self._recorded[shape] = graph, batches, result
            self._check(draw())
        except Exception:
            self._recorded.clear()
            for optimizer, state in zip(self.update.optimizers, states, strict=True):
                optimizer.state.clear()  # drops states that only the graph could use
                optimizer.state.update(state)
            # a failed recording leaves them recording
            for generator in torch.cuda.default_generators:
                generator.graphsafe_set_state(generator.clone_state())
            raise

    def _check(self, batches: Batches) -> None:
        """Raise RuntimeError unless a replayed step does what an eager step does from the same
        state.

        Batches and learning rates differ from the recorded ones. Repeated eager steps show how well
        each tensor repeats at all, because some kernels add in varying order. After a step that is
        not finite, recording is tried again.
        """
        before, learning_rates = _copies(self._state()), [group["lr"] for group in self._groups()]
        for group, rate in zip(self._groups(), learning_rates, strict=True):
            peak = group.get("peak_lr", rate)
            group["lr"] = peak if rate < 0.75 * peak else 0.5 * peak
        try:
            # no optimizer state is zero from here on, so a graph that resets one shows
            self._eager(batches)
            start = _copies(self._state())
            *eager, replayed = (
                self._outcome(update, start, batches)
                for update in (*[self._eager] * EAGER_REPEATS, self._replay)
            )
        finally:
            _copy_into(self._state(), before)
            for group, rate in zip(self._groups(), learning_rates, strict=True):
                group["lr"] = rate
        # the eager step was skipped, as the last tensor says: nothing can be compared
        if eager[0][-1][0] > 0:
            del self._recorded[_shape(batches)], self._n_eager[_shape(batches)]
            return
        for (tensor, largest), *repeats, (other, _) in zip(*eager, replayed, strict=True):
            noise = max(relative_difference(tensor, repeat) for repeat, _ in repeats)
            difference = relative_difference(tensor, other)
            if difference > max(TOLERANCE, min(4 * noise, largest)):
                raise RuntimeError(
                    f"a replayed step differs from an eager one by {difference:.1e} (relative)"
                )

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.update.optimizers for group in optimizer.param_groups]

    def _outcome(
        self, update: Callable[[Batches], Result], start: list[torch.Tensor], batches: Batches
    ) -> Limited:
        """Changes of the weights by an update from the state `start`, and all else that it returns
        or changes."""
        _copy_into(self._state(), start)
        with torch.random.fork_rng(
            [self.update.device] if self.update.device.type == "cuda" else []
        ):
            sums, losses = update(batches)
        weights = list(self.update.model.parameters())
        changes = torch._foreach_sub([weight.detach() for weight in weights], start[: len(weights)])
        others = _copies([*sums.values(), *losses, *self._state()[len(weights) :]])
        return [(each, LARGEST_NOISE_OF_UPDATES) for each in changes] + [
            (each, LARGEST_NOISE) for each in others
        ]

    def _state(self) -> list[torch.Tensor]:
        """All tensors that an update changes: weights, optimizer states, and last the count of
        skipped steps."""
        states = (
            state for optimizer in self.update.optimizers for state in optimizer.state.values()
        )
        values = (value for state in states for value in state.values())
        return [*self.update.model.parameters(), *values, self.update.skipped_in_a_row]

    def _eager(self, batches: Batches) -> Result:
        with self._rates_on_device():
            return self.update(batches)

    def _replay(self, batches: Batches) -> Result:
        graph, static_batches, result = self._recorded[_shape(batches)]
        for static, batch in zip(static_batches, batches, strict=True):
            _copy_into(static.tensors(), batch.tensors())
        with self._rates_on_device():
            graph.replay()
        sums, losses = result
        # a masker may keep the losses, and the next replay overwrites them
        return sums, _copies(losses)

    @contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """Gives the optimizers their learning rates as tensors, whose addresses a graph can keep."""
        numbers = [group["lr"] for group in self._groups()]
        for group, rate in zip(self._groups(), self._rates, strict=True):
            rate.fill_(group["lr"])
            group.update(lr=rate, capturable=True)
        try:
            yield
        finally:
            for group, number in zip(self._groups(), numbers, strict=True):
                group.update(lr=number, capturable=False)


def shape_of(step: TrainingStep, stage: Stage) -> Shape:
    """The shape of the batches of a stage."""
    batch_size = step.chars_per_step // (stage.seq_len * step.grad_accum_steps)
    return stage.seq_len, batch_size * n_masked_in(stage.seq_len, stage.masking_prob)


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference between two tensors, relative to the norm of the first; infinite
    for nan."""
    difference = (one.double() - other.double()).norm()
    return (
        float((difference / one.double().norm()).nan_to_num(math.inf)) if difference != 0 else 0.0
    )


def _shape(batches: Batches) -> Shape:
    return batches[0].inputs.shape[1], batches[0].positions.numel()


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _copy_into(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
