"""Which way of masking is worth what: all strategies at the same number of steps, by the same protocol.

python -m benchmarks.strategies [--seeds 3] [--steps 250]

A model is judged by the protocol (single characters hidden at random), and on the same windows with whole words and
with spans of five characters hidden: a strategy might only be better at what it trains. Differences are against
`random`, paired by seed: runs of one seed begin with the same weights and see the same windows.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.differences import Paired, paired
from benchmarks.machine import machine, results_folder, results_name
from benchmarks.trials import run_trials, trials_of
from data.masking.strategies import STRATEGIES
from evaluate import trained
from runs.figures import save_figure
from runs.files import write_atomically
from runs.run_folder import RunFolder
from training import tracking
from training.measures import hard_masks

BASE = "random"
SECONDS_A_RUN = 100.0  # on two cores
COMMON = {
    "data.corpus": "tiny_shakespeare",
    "model.n_layers": 6,
    "training.chars_per_step": 4096,
    "training.muon_momentum": 0.95,
    "training.decay": 0.4,
    "training.stages": [
        {"until": 0.5, "seq_len": 64, "masking_prob": 0.3},
        {"until": 1.0, "seq_len": 128, "masking_prob": 0.15},
    ],
    "training.evaluations": 1,
    "sample.every_evaluations": 0,
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"masking.strategy": name} for name in STRATEGIES},
    "random, static": {"masking.strategy": "random", "masking.masks": "static"},
    "span, alike": {"masking.strategy": "span", "masking.corrupt": "unit"},
    "mixture": {"masking.strategy": "mixture", "masking.mixture": [{"until": 1.0, "random": 0.5, "span": 0.5}]},
}
MEASURES = ("loss.valid", "loss.words", "loss.spans")
TITLES = {"loss.valid": "protocol", "loss.words": "whole words", "loss.spans": "spans of 5"}
CLAIMS = {
    "random, static": "static masks are slightly worse than dynamic ones (RoBERTa, Liu et al. 2019)",
    "whole_word": "better than random on SQuAD and MultiNLI (BERT's release of May 2019)",
    "span": "better than random, words and entities on question answering (SpanBERT, Joshi et al. 2020)",
    "span, alike": "the same; SpanBERT corrupts a span alike",
    "entity": "better than BERT on five Chinese tasks (ERNIE, Sun et al. 2019)",
    "pmi": "better than random spans, in half the training (Levine et al. 2021)",
}


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the table and the figure; returns the exit code."""
    parser = argparse.ArgumentParser(description="Compare all masking strategies.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args(arguments)
    tracking.be_quiet()
    folder, file = results_folder(), results_name("strategies", parser, options)
    trials = trials_of(VARIANTS, COMMON | {"training.max_steps": options.steps}, options.seeds)
    rows = run_trials(folder / f"{file}.json", trials, measure, SECONDS_A_RUN)
    compared = {name: paired(rows, name, BASE) for name in MEASURES}
    commits = sorted({row["commit"] for row in rows})
    table = report(compared, options.seeds, options.steps, machine() | {"commit": ", ".join(commits)})
    print("\n" + table)
    write_atomically(folder / f"{file}.md", table.encode())
    save_picture(folder / f"{file}.png", compared, options.seeds)
    return 0


def measure(run: RunFolder) -> dict[str, float]:
    """What is compared of a run, in nats a masked character."""
    configs = trained(run)
    (row,) = run.metrics()
    hard = hard_masks(configs.network, configs.data.validation, configs.data.vocabulary)
    return {
        "loss.valid": row["loss.valid"],
        "loss.words": hard["whole words"]["loss"],
        "loss.spans": hard["spans of 5"]["loss"],
    }


def report(compared: Mapping[str, Mapping[str, Paired]], seeds: int, steps: int, here: Mapping[str, str]) -> str:
    """The table as Markdown."""
    lines = [
        "# Masking strategies",
        "",
        f"{steps} steps of 4,096 characters of tiny Shakespeare, six layers, windows of 64, then 128, the learning rate"
        f" falling over the last 40%, Muon's momentum 0.95, else the preset `quick`;"
        f" {seeds} seeds; {here['machine']}, torch {here['torch']}, commit {here['commit']}, {here['date']}.",
        f"Nats a hidden character, and the difference to `{BASE}` with its standard error, paired by seed. A difference"
        " within its 95% interval (Student's t) is a tie. Short runs of a small model: what holds here need not hold at"
        " scale.",
        "",
        "| strategy | " + " | ".join(TITLES[name] for name in MEASURES) + " | what was claimed |",
        "|---" * (len(MEASURES) + 2) + "|",
    ]
    for variant in sorted(compared[MEASURES[0]], key=lambda name: compared[MEASURES[0]][name].mean):
        cells = [_cell(compared[name][variant], variant) for name in MEASURES]
        lines.append(f"| {variant} | " + " | ".join(cells) + f" | {CLAIMS.get(variant, '')} |")
    return "\n".join(lines) + "\n"


def _cell(result: Paired, variant: str) -> str:
    if variant == BASE:
        return f"{result.mean:.3f}"
    return f"{result.mean:.3f} ({result.difference:+.3f} ± {result.stderr:.3f}, {result.verdict})"


def save_picture(path: Path, compared: Mapping[str, Mapping[str, Paired]], seeds: int) -> None:
    """Draw the differences with their 95% intervals, and write a PNG."""
    variants = sorted(compared[MEASURES[0]], key=lambda name: -compared[MEASURES[0]][name].mean)
    figure = Figure(figsize=(10, 0.3 * len(variants) + 1.5), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES, strict=True):
        results: Sequence[Paired] = [compared[name][variant] for variant in variants]
        colors = ["grey" if result.is_tie else "C2" if result.difference < 0 else "C3" for result in results]
        axes.axvline(0, color="black", linewidth=0.5)
        for y, (result, color) in enumerate(zip(results, colors, strict=True)):
            axes.errorbar(result.difference, y, xerr=result.margin, fmt="o", color=color, markersize=4)
        axes.set_yticks(range(len(variants)), variants)
        axes.set_title(TITLES[name])
        axes.set_xlabel(f"nats against {BASE}")
    figure.suptitle(f"Masking strategies, {seeds} seeds, with 95% intervals (left is better)")
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
