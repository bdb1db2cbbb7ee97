"""All masking strategies at the same number of training steps, by the same protocol.

python -m benchmarks.strategies [--seeds 3] [--steps 250]

A strategy may only be better at what it trains, so three losses are shown: by the protocol (single characters masked at
random), with whole words masked, and with spans of five characters masked, all on the same windows. Differences are
from `random`, by seed: runs with the same seed begin with the same weights and see the same windows.
"""

from argparse import Namespace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.command import recipe, run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import COMMON, last_losses, run_trials, trials_of
from data.masking.strategies import STRATEGIES
from runs.run_folder import RunFolder
from trained.load import load_trained
from trained.measures import hard_masks

BASE = "random"
RECIPE = recipe("strategies")
VARIANTS: dict[str, dict[str, Any]] = {name: {"masking.strategy": name} for name in STRATEGIES} | RECIPE["variants"]
LOSSES = {"loss.valid": "protocol", "loss.words": "whole words", "loss.spans": "spans of 5"}


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, print the table, and write JSON."""
    trials = trials_of(VARIANTS, COMMON | RECIPE["keys"] | {"training.max_steps": options.steps}, options.seeds)
    rows = run_trials(path, trials, measure, seconds_per_run=100.0)
    results = by_variant(rows)
    names = sorted(results, key=lambda name: fmean(run["loss.valid"] for run in results[name].values()))
    bases = {name: BASE for name in VARIANTS if name != BASE}
    table = compared({name: results[name] for name in names}, bases, LOSSES, {"claim": RECIPE["claims"]})
    save_results(path, table, steps=options.steps, trials=rows)


def measure(run: RunFolder) -> dict[str, Any]:
    """The losses of a run by the protocol and with hard masks."""
    trained = load_trained(str(run.path))
    hard = hard_masks(trained.model, trained.data().validation, trained.vocabulary)
    return last_losses(run) | {"loss.words": hard["whole words"]["loss"], "loss.spans": hard["spans of 5"]["loss"]}


if __name__ == "__main__":
    run_benchmark(main, seeds=3, steps=250)
