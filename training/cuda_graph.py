"""Training steps recorded as CUDA graphs: a graph launches the whole update at once.

A GPU computes a small model's step faster than Python can launch its hundreds of kernels. Replaying
a graph needs one launch.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from data.batch import Batch
from runs.errors import first_line
from training.callbacks.callback import Callback
from training.loop import Trainer
from training.objective import Losses, Sums
from training.step import Update

# per shape before recording: they create the optimizer states, which must lie outside the graph
EAGER_STEPS = 3
MOST_SHAPES = 16  # of batches with windows of one length
Batches = Sequence[Batch]
Shapes = tuple[torch.Size, ...]  # of all tensors of a step's batches
Result = tuple[Sums, Losses]


def can_record(update: Update) -> bool:
    """Whether the optimizers do all of their work on the device: PyTorch's `capturable` ones and
    Folio's Muon.

    Others compute learning rates in Python, and a graph would repeat the rates that it was recorded
    with.
    """
    return all("capturable" in optimizer.defaults for optimizer in update.optimizers)


@contextmanager
def recorded(
    device: torch.device, pool: Any = None, generators: Sequence[torch.Generator] = ()
) -> Iterator[torch.cuda.CUDAGraph]:
    """Records what runs inside. Graphs that take turns may share the `pool` of one of them, which is
    freed with the last. `generators` are those that it draws from, besides PyTorch's own."""
    # leftovers of eager steps would tie gradients to a stream other than the recorded one
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    # PyTorch records on the device of the current stream, and leaves its own current if recording
    # fails.
    stream = torch.cuda.stream(torch.cuda.current_stream(device))
    # other threads may pin memory
    options: dict[str, Any] = {"pool": pool, "capture_error_mode": "thread_local"}
    try:
        with stream, torch.cuda.graph(graph, **options):
            yield graph
    except Exception:
        # a failed recording leaves them recording
        for generator in (*torch.cuda.default_generators, *generators):
            generator.graphsafe_set_state(generator.clone_state())
        raise


class CudaGraphs(Callback):
    """Runs an update eagerly for some steps, then records it and replays it. As a callback, it
    stops the trainer's clock while it records.

    Batches of each shape have a graph of their own. Graphs of windows of another length are
    dropped. A graph reads and writes the addresses that it was recorded with. So batches are copied
    into the tensors of the recorded batches, and learning rates are tensors on the device, in eager
    steps too.
    """

    def __init__(self, update: Update, report: Callable[[str], None] = print):
        self.update = update
        self.report = report
        self.is_given_up = False
        self._pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._rates = [torch.zeros((), device=update.device) for _ in self._groups()]
        self._shape_of_inputs = torch.Size()
        self._n_eager: Counter[Shapes] = Counter()
        self._recorded: dict[
            Shapes, tuple[torch.cuda.CUDAGraph, list[torch.Tensor], Result]
        ] = {}

    def begin(self, trainer: Trainer) -> None:
        """Take the place of the update. Move optimizer states to the device: PyTorch loads step
        counts to the CPU if an optimizer is not fused."""
        trainer.training_step.run_update = self
        self.report = trainer.report
        self._pause = trainer.clock.stopped
        for optimizer in self.update.optimizers:
            for state in optimizer.state.values():
                for name, value in state.items():
                    state[name] = value.to(self.update.device)

    def __call__(self, batches: Batches) -> Result:
        if self.is_given_up:
            return self.update(batches)
        if batches[0].inputs.shape != self._shape_of_inputs:
            self._shape_of_inputs = batches[0].inputs.shape
            self._n_eager.clear()
            self._recorded.clear()

        shapes = tuple(tensor.shape for tensor in _tensors(batches))
        if shapes not in self._recorded and self._n_eager[shapes] == EAGER_STEPS:
            with self._pause():
                self._record(shapes, batches)
        if shapes in self._recorded:
            return self._replay(shapes, batches)

        self._n_eager[shapes] += 1
        if len(self._n_eager) > MOST_SHAPES:
            self._give_up("the shapes of the batches vary")
        with self._rates_on_device():
            return self.update(batches)

    def _give_up(self, reason: str) -> None:
        """All updates are eager from now on."""
        self.is_given_up = True
        self._recorded.clear()
        self.report(f"training without CUDA graphs: {reason}")

    def _record(self, shapes: Shapes, batches: Batches) -> None:
        """Record an update of batches of these shapes. It changes no weight and no state."""
        states = []
        for optimizer in self.update.optimizers:
            states.append({key: dict(value) for key, value in optimizer.state.items()})
        addresses = self._addresses()
        pool = next((other.pool() for other, *_ in self._recorded.values()), None)
        try:
            static = tree_map_only(torch.Tensor, torch.Tensor.clone, list(batches))
            with self._rates_on_device(), recorded(self.update.device, pool) as graph:
                result = self.update(static)
            if self._addresses() != addresses:
                raise RuntimeError("an optimizer replaces its state")
            self._recorded[shapes] = graph, _tensors(static), result
        except (
            Exception
        ) as error:  # training can do without anything that PyTorch cannot record
            for optimizer, state in zip(self.update.optimizers, states, strict=True):
                optimizer.state.clear()  # drops states that only the graph could use
                optimizer.state.update(state)
            self.update.model.zero_grad()
            self._give_up(first_line(error.__context__ or error))

    def _addresses(self) -> list[int]:
        """Where the weights and the optimizer states are."""
        tensors = list(self.update.model.parameters())
        for optimizer in self.update.optimizers:
            for state in optimizer.state.values():
                tensors += state.values()
        return [tensor.data_ptr() for tensor in tensors]

    @torch.no_grad()
    def _replay(self, shapes: Shapes, batches: Batches) -> Result:
        graph, static, (sums, losses) = self._recorded[shapes]
        for tensor, value in zip(static, _tensors(batches), strict=True):
            tensor.copy_(value)
        with self._rates_on_device():
            graph.replay()
        # a source may keep the losses, and the next replay overwrites them
        return sums, [each.clone() for each in losses]

    def _groups(self) -> list[dict[str, Any]]:
        return [
            group
            for optimizer in self.update.optimizers
            for group in optimizer.param_groups
        ]

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


def _tensors(batches: Batches) -> list[torch.Tensor]:
    return [
        leaf for leaf in tree_leaves(list(batches)) if isinstance(leaf, torch.Tensor)
    ]
