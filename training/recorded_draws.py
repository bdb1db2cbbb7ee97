"""Draws of batches recorded as CUDA graphs: one launch per batch, and a copy of each of its tensors.

Drawing windows and masks takes dozens of kernels, each of which works for less time than Python needs
to launch it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from data.batch import Batch
from data.batch_contract import BatchSource
from data.masked_windows import MaskedWindows
from data.masking.masker import Masker
from data.windows import Windows
from runs.errors import first_line
from training.callbacks.callback import Callback
from training.cuda_graph import EAGER_STEPS, recorded
from training.loop import Trainer

Shape = tuple[int, int, float]  # windows, their length, the masking rate


def generators_of(source: BatchSource) -> list[torch.Generator]:
    """The generators of a source, if nothing else decides its draws; otherwise none."""
    if type(source) is not MaskedWindows:
        return []
    windows = source.windows
    masker = source.masker
    if type(windows) is Windows and type(masker) is Masker:
        return [windows.generator, masker.generator]
    return []


class RecordedDraws(Callback):
    """Draws batches eagerly for some steps, then by replaying a graph per shape. The batches and the
    states of the generators are those of eager draws. Graphs of windows of another length are
    dropped."""

    def __init__(
        self,
        draw: Callable[..., Batch],
        generators: Sequence[torch.Generator],
        report: Callable[[str], None] = print,
    ):
        """`draw` is that of a source, with the `generators` that decide it."""
        self.draw = draw
        self.generators = generators
        self.report = report
        self.is_given_up = False
        self._pause: Callable[[], AbstractContextManager[None]] = nullcontext
        self._seq_len = 0
        self._n_eager: Counter[Shape] = Counter()
        self._recorded: dict[Shape, tuple[torch.cuda.CUDAGraph, Batch]] = {}

    def begin(self, trainer: Trainer) -> None:
        """Take the place of the source's draws. The clock stands still while a graph is recorded."""
        self.report = trainer.report
        self._pause = trainer.clock.stopped
        trainer.training_step.source.draw = self  # type: ignore[method-assign]

    def __call__(
        self, batch_size: int, seq_len: int, masking_prob: float, progress: float
    ) -> Batch:
        if seq_len != self._seq_len:
            self._seq_len = seq_len
            self._n_eager.clear()
            self._recorded.clear()

        shape = (batch_size, seq_len, masking_prob)
        if not self.is_given_up and self._n_eager[shape] == EAGER_STEPS:
            with self._pause():
                self._record(shape)
        self._n_eager[shape] += 1
        if shape not in self._recorded:
            return self.draw(*shape, progress)

        graph, batch = self._recorded[shape]
        graph.replay()
        # the next replay overwrites it
        return tree_map_only(torch.Tensor, torch.Tensor.clone, batch)

    def _record(self, shape: Shape) -> None:
        pool = next((graph.pool() for graph, _ in self._recorded.values()), None)
        device = self.generators[0].device
        try:
            with recorded(device, pool, self.generators) as graph:
                batch = self.draw(*shape, progress=0.0)
            self._recorded[shape] = graph, batch
        except Exception as error:  # training can do without it
            self.is_given_up = True
            reason: Any = error.__context__ or error
            self.report(f"training without recorded draws: {first_line(reason)}")
