"""What is the sequence-length warmup worth? Against windows of one length, at equal time and at equal characters.

python -m benchmarks.warmup [--seeds 3] [--seconds 60] [--chars 500000]

All have the masking rates of the preset `quick`, in the same parts of the training, and the same characters a step:
only the length of the windows differs. A model is judged by the protocol, with windows of 256 characters, and with
windows as long as its last ones were: one that was trained on 32 is not judged on its extrapolation alone.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.differences import Paired, paired
from benchmarks.machine import machine, results_folder, results_name
from benchmarks.trials import run_trials, trials_of
from configs.command_line import PRESETS, read_config
from runs.figures import save_figure
from runs.files import write_atomically
from runs.run_folder import RunFolder

SECONDS_A_RUN = 95.0  # on two cores
LENGTHS = (32, 64, 128, 256)
BASE = "warmup"
LONGEST = str(LENGTHS[-1])  # the warmup's last windows are as long
COMMON = {"data.corpus": "tiny_shakespeare", "training.evaluations": 1, "sample.every_evaluations": 0}
MEASURES = {"loss.valid": "windows of 256 (the protocol)", "loss.valid_at_seq_len": "windows as trained"}


def variants() -> dict[str, dict[str, Any]]:
    """The preset's own stages, and the same with one length all along."""
    stages = read_config(PRESETS / "quick.yaml")["training.stages"]
    fixed = {f"{n}": {"training.stages": [{**row, "seq_len": n} for row in stages]} for n in LENGTHS}
    return {BASE: {"training.stages": stages}, **fixed}


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the tables and the figure; returns the exit code."""
    parser = argparse.ArgumentParser(description="What is the sequence-length warmup worth?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--chars", type=int, default=500_000)
    options = parser.parse_args(arguments)
    folder, file = results_folder(), results_name("warmup", parser, options)
    budgets = {
        f"{options.seconds:g} seconds": {"training.max_seconds": options.seconds},
        f"{options.chars / 1e6:g} million characters": {"training.max_chars": options.chars},
    }
    trials = {name: trials_of(variants(), COMMON | budget, options.seeds) for name, budget in budgets.items()}
    both = [trial for of_one in trials.values() for trial in of_one]
    rows = run_trials(folder / f"{file}.json", both, measure, SECONDS_A_RUN)
    by_budget = dict(zip(trials, (rows[: len(both) // 2], rows[len(both) // 2 :]), strict=True))
    results = {budget: {name: paired(of_one, name, BASE) for name in MEASURES} for budget, of_one in by_budget.items()}
    table = report(results, options.seeds, ", ".join(sorted({row["commit"] for row in rows})))
    print("\n" + table)
    write_atomically(folder / f"{file}.md", table.encode())
    save_picture(folder / f"{file}.png", results)
    return 0


def measure(run: RunFolder) -> dict[str, float]:
    """What a run has come to."""
    row = run.metrics()[-1]
    return {name: row[name] for name in (*MEASURES, "accuracy.valid", "chars", "seconds")}


Results = Mapping[str, Mapping[str, Mapping[str, Paired]]]


def report(results: Results, seeds: int, commits: str) -> str:
    """The tables as Markdown."""
    here = machine()
    lines = [
        "# Sequence-length warmup against windows of one length",
        "",
        f"The preset `quick` on tiny Shakespeare, {seeds} seeds; {here['machine']}, {here['threads']} thread(s), torch"
        f" {here['torch']}, commit {commits}, {here['date']}.",
        "Nats a masked character, mean and standard error over the seeds, and the difference to the warmup (64, then"
        " 128, then 256), paired by seed: within its 95% interval (Student's t) it is a tie. No difference is shown"
        " between losses in windows of different lengths.",
    ]
    for budget, by_measure in results.items():
        lines += [
            "",
            f"## {budget.capitalize()}",
            "",
            "| windows | " + " | ".join(MEASURES.values()) + " |",
            "|---|---|---|",
        ]
        for variant in by_measure["loss.valid"]:
            cells = (
                cell(by_measure[name][variant], variant != BASE and (name == "loss.valid" or variant == LONGEST))
                for name in MEASURES
            )
            lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cell(result: Paired, is_comparable: bool) -> str:
    """The mean, and the difference to the warmup where both are about the same windows."""
    mean = f"{result.mean:.3f} ± {result.mean_stderr:.3f}"
    if not is_comparable:
        return mean
    return f"{mean} ({result.difference:+.3f} ± {result.stderr:.3f}, {result.verdict})"


def save_picture(path: Path, results: Results) -> None:
    """Draw the means with their standard errors, a panel a budget, and write a PNG."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (budget, by_measure) in zip(figure.subplots(1, len(results), sharey=True), results.items(), strict=True):
        for (name, title), color in zip(MEASURES.items(), ("C0", "C1"), strict=True):
            found = by_measure[name]
            offsets = range(len(found))
            means, errors = [r.mean for r in found.values()], [r.mean_stderr for r in found.values()]
            axes.errorbar(offsets, means, yerr=errors, fmt="o", color=color, label=title, capsize=3)
        axes.set_xticks(offsets, list(found))
        axes.set_title(budget)
        axes.set_xlabel("length of the windows")
    figure.axes[0].set_ylabel("loss (nats)")
    figure.axes[0].legend()
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
