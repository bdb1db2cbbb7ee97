"""From the annotated recipe to the preset `quick`, one change at a time: what is each worth?

python -m benchmarks.ladder [--seeds 3] [--seconds 90]

Every rung is trained for the same seconds, so a change pays in characters a second or in what is learnt from each.
A rung's gain is paired with the one before it, by seed. What a change is worth depends on what is there already: the
order is a choice, and another one would share the gain out differently.
"""

import argparse
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from benchmarks.differences import Paired, paired
from benchmarks.machine import machine, results_folder
from benchmarks.trials import run_trials, trials_of
from configs.command_line import PRESETS, read_config
from data.figures import save_figure
from training.run_folder import RunFolder, write_atomically

SECONDS_A_RUN = 140.0  # on one core, for 90 seconds of training
COMMON = {"data.corpus": "tiny_shakespeare", "training.evaluations": 1, "sample.every_evaluations": 0}


def halves(seq_len: int) -> list[dict[str, Any]]:
    """The stages of a training with 30% masked in its first half, and 15% in the second."""
    return [
        {"until": 0.5, "seq_len": seq_len, "masking_prob": 0.3},
        {"until": 1.0, "seq_len": seq_len, "masking_prob": 0.15},
    ]


RUNGS: Mapping[str, Mapping[str, Any]] = {
    "annotated": {},
    "attention fused": {"model.architecture": "fused"},
    "AdamW, rise and fall": {
        "training.optimizer": "adamw",
        "training.learning_rate": 2e-3,
        "training.weight_decay": 0.01,
        "training.warmup": 0.05,
        "training.decay": 0.4,
    },
    "no dropout": {"model.dropout": 0.0},
    "rotary positions": {"model.architecture": "rotary"},
    "GeGLU": {"model.architecture": "geglu"},
    "initialisation": {"model.architecture": "initialised"},
    "norms, tied head, no biases": {"model.architecture": "modern"},
    "exact masks, random windows": {"masking.strategy": "random", "data.sampling": "random"},
    "four heads": {"model.n_heads": 4},
    "Muon": {"training.optimizer": "muon"},
    "30% masked at first": {"training.stages": halves(32)},
    "windows of 64": {"training.stages": halves(64)},
    "longer windows at the end": {"training.stages": "quick"},
    "4,096 characters a step": {"training.chars_per_step": 4096},
    "compiled (and bfloat16 on CUDA)": {"training.compile": True, "training.precision": "auto"},
}


def rungs() -> dict[str, dict[str, Any]]:
    """Every rung with all keys that it sets on the preset `quick`; the last one sets nothing that is not there."""
    quick = read_config(PRESETS / "quick.yaml")
    # A rate on the command line would take the place of the stages' own; 15% is the default.
    beside = ("training.max_chars", "training.evaluations", "masking.masking_prob")
    keys = {key: value for key, value in read_config(PRESETS / "annotated.yaml").items() if key not in beside}
    ladder = {}
    for name, changes in RUNGS.items():
        keys = keys | {key: quick[key] if value == "quick" else value for key, value in changes.items()}
        ladder[name] = dict(keys)
    return ladder


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the table and the figure; returns the exit code."""
    parser = argparse.ArgumentParser(description="From the annotated recipe to quick, one change at a time.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args(arguments)
    folder = results_folder()
    trials = trials_of(rungs(), COMMON | {"training.max_seconds": options.seconds}, options.seeds)
    rows = run_trials(folder / "ladder.json", trials, measure, SECONDS_A_RUN, "benchmarks.models")
    names = list(RUNGS)
    gains = {name: paired(rows, "loss.valid", before)[name] for before, name in pairwise([names[0], *names])}
    chars = {name: median(row["results"]["chars"] for row in rows if row["variant"] == name) for name in names}
    commits = sorted({row["commit"] for row in rows})
    table = report(gains, chars, options.seeds, options.seconds, ", ".join(commits))
    print("\n" + table)
    write_atomically(folder / "ladder.md", table.encode())
    save_picture(folder / "ladder.png", gains, options.seconds)
    return 0


def measure(run: RunFolder) -> dict[str, float]:
    """What a run has come to."""
    row = run.metrics()[-1]
    return {name: row[name] for name in ("loss.valid", "loss.valid_at_seq_len", "accuracy.valid", "chars")}


def report(gains: Mapping[str, Paired], chars: Mapping[str, float], seeds: int, seconds: float, commits: str) -> str:
    """The table as Markdown."""
    here = machine()
    lines = [
        "# The ladder",
        "",
        f"From the annotated recipe to the preset `quick`, one change a row, each on top of all above it: {seconds:g}"
        f" seconds of training on tiny Shakespeare, {seeds} seeds; {here['machine']}, {here['threads']} thread(s),"
        f" torch {here['torch']}, commit {commits}, {here['date']}.",
        "`loss.valid` in nats, its change from the row above with the standard error (paired by seed; under two of them"
        " it is a tie), and the characters trained on (median).",
        "",
        "| change | `loss.valid` | from the row above | characters |",
        "|---|---|---|---|",
    ]
    for name, gain in gains.items():
        change = f"{gain.difference:+.3f} ± {gain.stderr:.3f}, {gain.verdict}" if name != next(iter(gains)) else ""
        lines.append(f"| {name} | {gain.mean:.3f} | {change} | {chars[name] / 1e6:.2f} M |")
    return "\n".join(lines) + "\n"


def save_picture(path: Path, gains: Mapping[str, Paired], seconds: float) -> None:
    """Draw the losses going down the ladder, and write a PNG."""
    names = list(gains)
    figure = Figure(figsize=(8, 0.32 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots()
    for y, name in enumerate(names):
        gain = gains[name]
        color = "grey" if gain.is_tie else "C2" if gain.difference < 0 else "C3"
        axes.barh(y, gain.mean, color=color, xerr=0 if y == 0 else gain.stderr, error_kw={"linewidth": 1})
        axes.text(gain.mean + 0.05, y, f"{gain.mean:.2f}", verticalalignment="center", fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(f"loss.valid after {seconds:g} s of training (nats); green: better than the row above, grey: a tie")
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
