"""The cost of each masking strategy: preparing tiny Shakespeare, a training step, and memory.

python -m benchmarks.masking_cost [--repeats 15]

The steps of all strategies alternate in one process with the same model. A ratio is to the turn of `random` in the same
round. Drawing the masks is also timed alone, which is more reliable on a machine that is not quiet.
"""

import statistics
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.command import device_preset, preset_values, run_benchmark, save_results
from benchmarks.strategies import BASE, VARIANTS
from benchmarks.turns import seconds_per_call, take_turns, warmed_up_step
from configs.experiment import Configs, configs_of
from training.schedule import Stage
from training.step import TrainingStep

STEPS = 5  # per turn


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    preset, text = device_preset(), {"data.corpus": "tiny_shakespeare"}
    configs = {name: configs_of(preset_values(preset, text | keys)) for name, keys in VARIANTS.items()}
    prepare_seconds = {name: prepare(c) for name, c in configs.items()}
    step, stage = warmed_up_step(configs[BASE])

    def turn(name: str) -> tuple[float, float]:
        step.masker = configs[name].masking.strategy
        seconds_per_step = seconds_per_call(lambda: step(stage).loss, STEPS)
        return seconds_per_step, seconds_per_call(partial(draw, step, stage), STEPS)

    turns = take_turns({name: partial(turn, name) for name in configs}, options.repeats, warmup=1)
    results = {}
    print(f"{'strategy':18} prepare       bytes  ms per draw  ms per step   ratio to {BASE} (quartiles)")
    for name, found in turns.items():
        steps, draws = zip(*found, strict=True)
        low, middle, high = np.quantile(np.divide(steps, [base for base, _ in turns[BASE]]), (0.25, 0.5, 0.75)).tolist()
        results[name] = row = {
            "prepare_seconds": prepare_seconds[name],
            "bytes": size(configs[name].masking.strategy),
            "ms_per_draw": 1000 * statistics.median(draws),
            "ms_per_step": 1000 * statistics.median(steps),
            "ratio": middle,
            "ratio_quartiles": [low, high],
        }
        print(
            f"{name:18} {row['prepare_seconds']:5.2f} s {row['bytes']:>11,} {row['ms_per_draw']:12.2f}"
            f" {row['ms_per_step']:12.1f}   {middle:.3f} ({low:.3f} to {high:.3f})"
        )
    save_results(path, seq_len=stage.seq_len, repeats=options.repeats, strategies=results)


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
