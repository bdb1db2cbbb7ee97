"""A warmed-up training step, for benchmarks."""

from configs.experiment import Configs
from training.compilation import Compilation
from training.recording import EAGER_STEPS
from training.schedule import Stage
from training.step import TrainingStep


def warmed_up_step(configs: Configs, stage: Stage) -> TrainingStep:
    """The step after some updates: compiled if the configs ask for it, and recorded on CUDA.

    Raises RuntimeError if compiling or recording fails.
    """
    step = configs.step
    compilation = Compilation(step, is_wanted=configs.training.compile, cuda_graph=configs.training.cuda_graph)
    compilation.compile([stage], _raise_failure)
    for _ in range(EAGER_STEPS):
        step(stage)
    if not compilation.is_ready(stage):
        compilation.prepare(stage, _raise_failure)
    return step


def _raise_failure(line: str) -> None:
    if line.startswith("training without"):
        raise RuntimeError(line)
