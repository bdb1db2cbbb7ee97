"""Sequence-length warmup against windows of one length, for equal time and for equal characters.

python -m benchmarks.warmup [--seeds 3] [--seconds 60] [--chars 500000]

All runs have the masking rates of the preset `quick` in the same parts of the training, and the same number of
characters per step. Only the length of the windows differs. The protocol's windows have 256 characters; the loss in
windows as long as the last ones of the training judges a model that was trained on 32 without extrapolation.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import run_benchmark
from benchmarks.report import Report
from benchmarks.trials import COMMON, LOSSES, last_losses, run_trials, trials_of
from configs.command_line import PRESETS, read_config

LENGTHS = (32, 64, 128, 256)


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, and write the table and the figure."""
    found = variants(options.seconds, options.chars)
    measured = run_trials(path, trials_of(found, COMMON, options.seeds), last_losses, seconds_per_run=95.0)
    report(list(found)).save(path, measured)


def variants(seconds: float, chars: int) -> dict[str, dict[str, Any]]:
    """The preset's own stages and windows of one length, each with both budgets."""
    stages = read_config(PRESETS / "quick.yaml")["training.stages"]
    lengths = {"warmup": stages} | {f"{n} only": [{**row, "seq_len": n} for row in stages] for n in LENGTHS}
    budgets = {f"{seconds:g} s": ("max_seconds", seconds), f"{chars:,} characters": ("max_chars", chars)}
    return {
        f"{length}, {budget}": {"training.stages": rows, f"training.{key}": value}
        for budget, (key, value) in budgets.items()
        for length, rows in lengths.items()
    }


def report(names: Sequence[str]) -> Report:
    """Each length against the warmup with the same budget."""
    return Report(
        title="Sequence-length warmup",
        note="The preset `quick` on tiny Shakespeare, with its own windows (64, then 128, then 256 characters) and with"
        " windows of one length.",
        base="the warmup with the same budget",
        bases={name: f"warmup, {name.partition(', ')[2]}" for name in names if not name.startswith("warmup")},
        losses=LOSSES,
    )


if __name__ == "__main__":
    run_benchmark(main, seeds=3, seconds=60.0, chars=500_000)
