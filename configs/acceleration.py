"""What makes a training step faster: PyTorch's compiler, and CUDA graphs. Each replaces a part of
the step before training begins."""

from configs.branch import is_sharded
from configs.experiment import Configs
from distributed.launch import n_started
from distributed.substitutes import in_all_processes
from training.compilation import Compiled
from training.cuda_graph import CudaGraphs, can_record
from training.recorded_draws import RecordedDraws, generators_of


def compiled_objective(c: Configs) -> Compiled | None:
    """The objective of the training, which `Compiled.compile` compiles; None if the keys turn that
    off. The compiler does not know the hooks that gather a sharded layer."""
    if not c.training.compile or is_sharded(c):
        return None
    return in_all_processes(Compiled)(c.update.objective)


def cuda_graphs(c: Configs) -> CudaGraphs | None:
    """CUDA graphs of the updates, for a GPU. What processes exchange cannot be recorded."""
    is_possible = c.torch_device.type == "cuda" and n_started() == 1
    if not c.training.cuda_graph or not is_possible or not can_record(c.update):
        return None
    return CudaGraphs(c.update)


def recorded_draws(c: Configs) -> RecordedDraws | None:
    """Recorded draws of batches, where updates are recorded too."""
    generators = generators_of(c.source)
    if not generators or not cuda_graphs(c):
        return None
    return RecordedDraws(c.source.draw, generators)
