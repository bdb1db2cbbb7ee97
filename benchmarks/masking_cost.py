"""What each masking strategy costs: preparing tiny Shakespeare, a training step, memory.

python -m benchmarks.masking_cost [--repeats 15]

Steps of all strategies alternate in one process, with the same model; a ratio is between neighbours of one round. The
drawing of the masks is timed by itself as well: where the machine is not quiet, that is the surer figure.
"""

import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch

from benchmarks.differences import rotated
from benchmarks.machine import machine, results_folder, results_name
from benchmarks.under_way import step_under_way
from configs.command_line import PRESETS, read_config, resolve
from configs.experiment import Configs, best_device, configs_of
from data.masking.segmenters import Segmenter
from data.masking.strategies import STRATEGIES
from data.windows import WindowBatch
from runs.files import write_atomically
from training import tracking
from training.schedule import Stage
from training.step import TrainingStep

BASE = "random"
STEPS = 5  # of one strategy before the next one's turn


def main(arguments: list[str]) -> int:
    """Measure, print a table, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description="What each masking strategy costs.")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(arguments)
    tracking.be_quiet()
    configs = {name: configured(name) for name in strategies()}
    prepared = {name: prepare(c) for name, c in configs.items()}
    stage = configs[BASE].training.stage_rows[0]
    step = step_under_way(configs[BASE], stage)
    rounds: dict[str, list[float]] = {name: [] for name in configs}
    draws: dict[str, list[float]] = {name: [] for name in configs}
    began = time.perf_counter()
    for i in range(-1, options.repeats):  # the first round warms up
        if i == 0:
            print(f"about {(time.perf_counter() - began) * options.repeats / 60:.0f} minutes", flush=True)
        for name in rotated(list(configs), i):
            step.masker = configs[name].masking.strategy
            seconds = time_steps(step, stage)
            drawing = time_draws(step, stage)
            if i >= 0:
                rounds[name].append(seconds)
                draws[name].append(drawing)
    results = {}
    print(f"{'strategy':18} prepare       bytes  ms a draw  ms a step   against {BASE} (quartiles)")
    for name, times in rounds.items():
        ratios = [t / base for t, base in zip(times, rounds[BASE], strict=True)]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        results[name] = {
            "prepare_seconds": prepared[name],
            "bytes": size(configs[name].masking.strategy.segmenter),
            "ms_a_draw": 1000 * statistics.median(draws[name]),
            "ms_a_step": 1000 * statistics.median(times),
            "ratio": middle,
            "ratio_quartiles": [low, high],
        }
        row = results[name]
        print(
            f"{name:18} {row['prepare_seconds']:5.2f} s {row['bytes']:>11,} {row['ms_a_draw']:10.2f}"
            f" {row['ms_a_step']:10.1f}   {middle:.3f} ({low:.3f} to {high:.3f})"
        )
    content = {"machine": machine(), "seq_len": stage.seq_len, "repeats": options.repeats, "strategies": results}
    write_atomically(
        results_folder() / f"{results_name('masking_cost', parser, options)}.json",
        (json.dumps(content, indent=1) + "\n").encode(),
    )
    return 0


def strategies() -> list[str]:
    """All but labml_nn's own, which is for another preset."""
    return [*STRATEGIES, "mixture"]


def configured(name: str) -> Configs:
    """The preset of this device with a strategy."""
    keys: dict[str, object] = {"masking.strategy": name, "data.corpus": "tiny_shakespeare"}
    if name == "mixture":
        keys["masking.mixture"] = [{"until": 1.0, "random": 0.5, "span": 0.5}]
    preset = "gpu" if best_device() == "cuda" else "quick"
    return configs_of(resolve(read_config(PRESETS / f"{preset}.yaml"), keys))


def prepare(configs: Configs) -> float:
    """Seconds for all that a strategy computes from the text."""
    _ = configs.data.training_ids, configs.data.vocabulary
    began = time.perf_counter()
    _ = configs.masking.strategy
    return time.perf_counter() - began


def time_steps(step: TrainingStep, stage: Stage) -> float:
    """Seconds a step."""
    began = time.perf_counter()
    for _ in range(STEPS):
        sums = step(stage)
    sums.loss_sum.item()  # waits for the device
    return (time.perf_counter() - began) / STEPS


def time_draws(step: TrainingStep, stage: Stage) -> float:
    """Seconds for the windows and masks of a step, and for what a strategy learns from it.

    It learns that all characters are equally hard.
    """
    losses = torch.ones_like(step.masker(*_windows(step, stage)[:2], stage.masking_prob, 0.0).labels.float())
    losses.sum().item()  # waits for the device
    began = time.perf_counter()
    for _ in range(STEPS):
        batch = step.masker(*_windows(step, stage)[:2], stage.masking_prob, 0.0)
        step.masker.observe(batch, losses)
    batch.labels.sum().item()
    return (time.perf_counter() - began) / STEPS


def _windows(step: TrainingStep, stage: Stage) -> WindowBatch:
    return step.windows.draw(step.chars_per_step // stage.seq_len, stage.seq_len)


def size(segmenter: Segmenter) -> int:
    """Bytes of all tensors of a segmenter, and of the segmenters in it."""
    total = 0
    for value in vars(segmenter).values():
        if isinstance(value, torch.Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, dict):
            total += sum(size(part) for part in value.values())
        elif hasattr(value, "__dict__"):
            total += size(value)
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
