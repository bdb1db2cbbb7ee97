"""A training step as it is once a run is under way: what measurements of it begin with."""

from configs.experiment import Configs
from training.compilation import compile_step
from training.graph import PLAIN_STEPS
from training.schedule import Stage
from training.step import TrainingStep


def step_under_way(configs: Configs, stage: Stage) -> TrainingStep:
    """The step, compiled where the configs have it so, and recorded on CUDA. Raises what PyTorch raises where it cannot
    be."""
    step = configs.step
    if configs.training.compile:
        compile_step(step, [stage])
    for _ in range(PLAIN_STEPS):
        step(stage)
    if not step.is_ready_for(stage):
        step.record(stage)
    return step
