"""Sequence-length warmup against windows of one length, for equal time, with two presets.

python -m benchmarks.warmup [--seeds 3] [--seconds 180]

All runs of a preset have its masking rates in the same parts of the training, and its characters
per step. Only the length of the windows differs. The protocol's windows have 256 characters; the
loss in windows as long as the last ones of the training judges a model that was trained on short
windows without extrapolation.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.command import run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import COMMON, LOSSES, Trial, last_losses, run_trials, trials_of
from configs.command_line.command import PRESETS, read_config

WITH_WARMUP = ("quick", "modernbert")


def main(options: Namespace, path: Path) -> None:
    rows = run_trials(
        path, trials(options.seconds, options.seeds), last_losses, options.seconds + 60
    )
    save_results(
        path, compared(by_variant(rows), bases(), LOSSES, {}), seconds=options.seconds, trials=rows
    )


def trials(seconds: float, seeds: int) -> list[Trial]:
    """All variants of each preset, seed by seed."""
    common = COMMON | {"training.max_seconds": seconds}
    both = []
    for preset in WITH_WARMUP:
        both += trials_of(variants(preset), common, seeds, preset)
    return sorted(both, key=lambda trial: trial["seed"])


def variants(preset: str) -> dict[str, dict[str, Any]]:
    """The preset's own stages, its last length throughout, and its first."""
    stages = read_config(PRESETS / f"{preset}.yaml")["training.stages"]
    by_name = {f"{preset}, warmup": {"training.stages": stages}}
    for n in (stages[-1]["seq_len"], stages[0]["seq_len"]):
        rows = [{**row, "seq_len": n} for row in stages]
        by_name[f"{preset}, {n} only"] = {"training.stages": rows}
    return by_name


def bases() -> dict[str, str]:
    """Each length is compared with the warmup of the same preset."""
    base_of = {}
    for preset in WITH_WARMUP:
        warmup, *lengths = variants(preset)
        base_of |= dict.fromkeys(lengths, warmup)
    return base_of


if __name__ == "__main__":
    run_benchmark(main, seeds=3, seconds=180.0)
