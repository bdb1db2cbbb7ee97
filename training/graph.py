"""CUDA graphs: what a training step does, recorded once, and from then on launched as one.

A GPU computes a small model's step sooner than Python can name its hundreds of parts. Replayed, they need no naming.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch.optim import Optimizer

from data.masking import MaskedBatch

PLAIN_STEPS = 3  # of a shape before it is recorded: what is made once, such as momenta, has to lie outside the graph

Result = TypeVar("Result")


def can_be_recorded(optimizers: Sequence[Optimizer]) -> bool:
    """Whether optimizers do all of their work on the device, as PyTorch's `capturable` ones and Muon here. Others
    compute their learning rates in Python: a graph would repeat those of the step that it was recorded from."""
    return all("capturable" in optimizer.defaults for optimizer in optimizers)


class GraphedUpdate(Generic[Result]):
    """Calls `update` with a step's batches; or, once recorded, replays what it did on the device.

    A graph reads and writes the addresses that it was recorded with, whatever is there by then. So the batches are
    copied to where the first ones were, and the learning rates are tensors in `update`, recorded or not.
    """

    def __init__(
        self, update: Callable[[Sequence[MaskedBatch]], Result], optimizers: Sequence[Optimizer], device: torch.device
    ):
        """`update` must read nothing back from the device, and change what it changes in place; what it returns is
        overwritten by the next call."""
        self._update = update
        self._optimizers = optimizers
        self._device = device
        self._rates = [torch.zeros((), device=device) for _ in self._groups()]
        self._shape: tuple[torch.Size, torch.Size] | None = None
        self._n_plain = 0
        self._recorded: tuple[torch.cuda.CUDAGraph, Sequence[MaskedBatch], Result] | None = None

    def __call__(self, batches: Sequence[MaskedBatch]) -> Result:
        for rate, group in zip(self._rates, self._groups(), strict=True):
            rate.fill_(group["lr"])
        self._forget_other_shapes(batches)
        if self._recorded is None:
            self._n_plain += 1
            with self._rates_on_device(capturable=False):
                return self._update(batches)
        graph, its_batches, result = self._recorded
        for static, batch in zip(its_batches, batches, strict=True):
            for to, tensor in zip(_tensors(static), _tensors(batch), strict=True):
                to.copy_(tensor)
        graph.replay()
        return result

    @property
    def is_due(self) -> bool:
        """Whether it is time to record."""
        return self._recorded is None and self._n_plain >= PLAIN_STEPS

    def record(self, batches: Sequence[MaskedBatch]) -> None:
        """Record an update with batches of this shape, unless too few of it were taken. It changes nothing. Raises
        RuntimeError where something in the update cannot be recorded."""
        self._forget_other_shapes(batches)
        if not self.is_due:
            return
        gc.collect()  # what is left of plain steps would tie gradients to another stream than the one recorded
        graph = torch.cuda.CUDAGraph()
        # It comes first: PyTorch records on the current device, and leaves its own stream as the current one where that
        # fails.
        outer = torch.cuda.stream(torch.cuda.current_stream(self._device))
        with self._rates_on_device(capturable=True), outer, torch.cuda.graph(graph):
            result = self._update(batches)
        self._recorded = graph, batches, result

    def _forget_other_shapes(self, batches: Sequence[MaskedBatch]) -> None:
        if _shape(batches) != self._shape:
            self._shape, self._n_plain, self._recorded = _shape(batches), 0, None

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    @contextmanager
    def _rates_on_device(self, capturable: bool) -> Iterator[None]:
        groups = self._groups()
        numbers = [group["lr"] for group in groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group.update(lr=rate, capturable=capturable)
        try:
            yield
        finally:
            for group, number in zip(groups, numbers, strict=True):
                group.update(lr=number, capturable=False)


def _shape(batches: Sequence[MaskedBatch]) -> tuple[torch.Size, torch.Size]:
    return batches[0].inputs.shape, batches[0].positions.shape


def _tensors(batch: MaskedBatch) -> list[torch.Tensor]:
    """All that an update reads. Where in the text the characters stand is for the masker, which gets the batch."""
    return [batch.inputs, batch.positions, batch.labels, *([] if batch.pairs is None else batch.pairs)]
