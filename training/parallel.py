"""The loss of a batch, computed by all processes together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from data.masking import MaskedBatch
from distributed.processes import Processes
from distributed.sharding import is_sharded
from training.objective import MaskedLoss

LossFunction = Callable[[nn.Module, MaskedBatch], MaskedLoss]


class LossModule(nn.Module):
    """A model with its loss as one module, because PyTorch parallelizes modules."""

    def __init__(self, model: nn.Module, loss_function: Callable[[], LossFunction]):
        """`loss_function` returns the current one, which may be compiled."""
        super().__init__()
        self.model = model
        self.loss_function = loss_function

    def forward(self, batch: MaskedBatch) -> MaskedLoss:
        return self.loss_function()(self.model, batch)


def parallel(module: LossModule, processes: Processes) -> nn.Module:
    """The module with gradients averaged over all processes (DistributedDataParallel), if there are several."""
    if processes.n == 1 or is_sharded(next(module.parameters())):  # FSDP averages the gradients itself
        return module
    from torch.nn.parallel import DistributedDataParallel  # the import takes a second

    # No training step changes buffers. Gradients are views of what is exchanged, which saves two copies.
    return DistributedDataParallel(module, forward_sync_buffers=False, gradient_as_bucket_view=True)


@contextmanager
def without_averaging(module: Any) -> Iterator[None]:
    """Leaves the gradients of this process as they are inside the context."""
    if hasattr(module, "no_sync"):  # DistributedDataParallel
        with module.no_sync():
            yield
    elif hasattr(module.model, "set_requires_gradient_sync"):  # FSDP
        module.model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.model.set_requires_gradient_sync(True)
    else:
        yield
