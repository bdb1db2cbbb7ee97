"""Sequence-length warmup against windows of one length, for equal time, with two presets.

python -m benchmarks.warmup [--seeds 3] [--seconds 180]

All runs of a preset have its masking rates in the same parts of the training, and its characters
per step. Only the length of the windows differs. The protocol's windows have 256 characters; the
loss in windows as long as the last ones of the training judges a model that was trained on short
windows without extrapolation.
"""

from argparse import Namespace
from pathlib import Path

from benchmarks.command import run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import LOSSES, Variants, last_losses, run_trials
from configs.command_line.command import PRESETS, read_config

WITH_WARMUP = ("quick", "modernbert")


def main(options: Namespace, path: Path) -> None:
    all_variants = variants(options.seconds)
    rows = run_trials(
        path, all_variants, options.seeds, last_losses, options.seconds + 60
    )
    # each length is compared with the warmup of the same preset
    bases = {name: f"{keys['preset']}, warmup" for name, keys in all_variants.items()}
    table = compared(by_variant(rows), bases, LOSSES, {})
    save_results(path, table, seconds=options.seconds, trials=rows)


def variants(seconds: float) -> Variants:
    """Each preset's own stages, its last length throughout, and its first."""
    by_name = {}
    for preset in WITH_WARMUP:
        stages = read_config(PRESETS / f"{preset}.yaml")["training.stages"]
        different = {"warmup": stages}
        for n in (stages[-1]["seq_len"], stages[0]["seq_len"]):
            different[f"{n} only"] = [{**row, "seq_len": n} for row in stages]
        for name, rows in different.items():
            budget = {"training.max_seconds": seconds}
            by_name[f"{preset}, {name}"] = {
                "preset": preset,
                "training.stages": rows,
                **budget,
            }

    return by_name


if __name__ == "__main__":
    run_benchmark(main, seeds=3, seconds=180.0)
