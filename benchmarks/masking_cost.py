"""The cost of each masking strategy: preparing tiny Shakespeare, a training step, and memory.

python -m benchmarks.masking_cost [--repeats 15]

The steps of all strategies alternate in one process with the same model. Drawing the masks is also timed alone, which
is more reliable on a machine that is not quiet.
"""

import time
from argparse import Namespace
from functools import partial
from pathlib import Path

import torch

from benchmarks.command import device_preset, preset_values, run_benchmark
from benchmarks.strategies import BASE, VARIANTS
from benchmarks.turns import Measures, compare, seconds_per_call, warmed_up_step
from configs.experiment import Configs, configs_of
from training.schedule import Stage
from training.step import TrainingStep

STEPS = 5  # per turn


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    preset, text = device_preset(), {"data.corpus": "tiny_shakespeare"}
    configs = {name: configs_of(preset_values(preset, text | keys)) for name, keys in VARIANTS.items()}
    prepared = {name: prepare(c) for name, c in configs.items()}
    step, stage = warmed_up_step(configs[BASE])

    def turn(name: str) -> Measures:
        step.masker = configs[name].masking.strategy
        steps_per_second = 1 / seconds_per_call(lambda: step(stage)["loss"], STEPS)
        return {
            "steps per second": steps_per_second,
            "ms per draw": 1000 * seconds_per_call(partial(draw, step, stage), STEPS),
            "seconds to prepare": prepared[name],
            "MB": size(step.masker) / 1e6,
        }

    compare(path, {"": {name: partial(turn, name) for name in configs}}, options.repeats, base=BASE, warmup=1)


def prepare(configs: Configs) -> float:
    """Seconds that a strategy takes to compute what it needs from the text."""
    _ = configs.data.training_ids, configs.data.vocabulary
    began = time.perf_counter()
    _ = configs.masking.strategy
    return time.perf_counter() - began


def draw(step: TrainingStep, stage: Stage) -> torch.Tensor:
    """Draw the windows and masks of a step, and let the strategy learn from losses that are all 1."""
    batches = step.draw(stage)
    for batch in batches:
        step.masker.observe(batch, torch.ones_like(batch.labels, dtype=torch.float32))
    return batches[0].labels


def size(value: object) -> int:
    """Bytes of all tensors in a masker and in the objects it holds."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    parts = value.values() if isinstance(value, dict) else vars(value).values() if hasattr(value, "__dict__") else ()
    return sum(size(part) for part in parts)


if __name__ == "__main__":
    run_benchmark(main, repeats=15)
