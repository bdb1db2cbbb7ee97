"""From the annotated recipe to the preset `quick`, one change at a time: what is each worth?

python -m benchmarks.ablation [--seeds 3] [--seconds 90] [--begin RUNG]

Every rung is trained for the same seconds, so a change pays in characters a second or in what is learnt from each.
A rung's gain is paired with the one before it, by seed. What a change is worth depends on what is there already: the
order is a choice, and another one would share the gain out differently. (labml_nn's layers are pre-norm already.)
A model that has seen windows of 32 characters only may know them well and fail on the protocol's 256: both are shown.
--begin leaves out what is below a rung.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from benchmarks.differences import Paired, paired
from benchmarks.machine import machine, results_folder, results_name
from benchmarks.trials import run_trials, trials_of
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve
from runs.figures import save_figure
from runs.files import write_atomically
from runs.run_folder import RunFolder

SECONDS_A_RUN = 110.0  # on one core, for 90 seconds of training
MEASURES = {"loss.valid": "windows of 256 (the protocol)", "loss.valid_at_seq_len": "windows as trained"}
COMMON = {"data.corpus": "tiny_shakespeare", "training.evaluations": 1, "sample.every_evaluations": 0}


def more_masks(seq_len: int) -> list[dict[str, Any]]:
    """The stages of the preset `quick`, with its masking rates, but windows of one length."""
    return [{**row, "seq_len": seq_len} for row in read_config(PRESETS / "quick.yaml")["training.stages"]]


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
    "more masks at first": {"training.stages": more_masks(32)},
    "windows of 64": {"training.stages": more_masks(64)},
    "longer windows at the end": {"training.stages": "quick"},
    "a longer fall": {"training.decay": "quick"},
    "four layers": {"model.n_layers": "quick"},
    "a shorter memory in Muon": {"training.muon_momentum": "quick"},
    "compiled (and bfloat16 on CUDA)": {"training.compile": True, "training.precision": "auto"},
}


def rungs() -> dict[str, dict[str, Any]]:
    """Every rung with all keys that it sets on the preset `quick`; the last one sets nothing that is not there."""
    quick, annotated = (read_config(PRESETS / f"{name}.yaml") for name in ("quick", "annotated"))
    # How long and how often is no rung's to say; nor is the masking rate, which is the stages' own.
    beside = {*BUDGETS, *COMMON, "masking.masking_prob"}
    # What quick sets and annotated leaves at its default is set too: the rungs below would else have quick's.
    as_annotated = resolve(annotated, {})
    keys = {key: as_annotated[key] for key in {**annotated, **quick} if key not in beside}
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
    parser.add_argument("--begin", metavar="RUNG", choices=list(RUNGS), default=next(iter(RUNGS)))
    options = parser.parse_args(arguments)
    folder = results_folder()
    names = list(RUNGS)[list(RUNGS).index(options.begin) :]
    file = results_name("ladder", parser, options)
    climbed = {name: rungs()[name] for name in names}
    trials = trials_of(climbed, COMMON | {"training.max_seconds": options.seconds}, options.seeds)
    rows = run_trials(folder / f"{file}.json", trials, measure, SECONDS_A_RUN, "benchmarks.models")
    gains = {
        measure: {name: paired(rows, measure, before)[name] for before, name in pairwise([names[0], *names])}
        for measure in MEASURES
    }
    chars = {name: median(row["results"]["chars"] for row in rows if row["variant"] == name) for name in names}
    commits = sorted({row["commit"] for row in rows})
    table = report(gains, chars, options.seeds, options.seconds, ", ".join(commits))
    print("\n" + table)
    write_atomically(folder / f"{file}.md", table.encode())
    save_picture(folder / f"{file}.png", gains, options.seconds)
    return 0


def measure(run: RunFolder) -> dict[str, float]:
    """What a run has come to."""
    row = run.metrics()[-1]
    return {name: row[name] for name in (*MEASURES, "accuracy.valid", "chars")}


Gains = Mapping[str, Mapping[str, Paired]]


def report(gains: Gains, chars: Mapping[str, float], seeds: int, seconds: float, commits: str) -> str:
    """The table as Markdown."""
    here = machine()
    lines = [
        "# The ladder",
        "",
        f"From the recipe `{next(iter(chars))}` to the preset `quick`, one change a row, each on top of all above it:"
        f" {seconds:g} seconds of training on tiny Shakespeare, {seeds} seeds; {here['machine']},"
        f" {here['threads']} thread(s), torch {here['torch']}, commit {commits}, {here['date']}.",
        "Nats a masked character, and the change from the row above with its standard error, paired by seed; what is"
        " within the 95% interval (Student's t) is a tie. No change is shown where the windows' length is another"
        " than in the row above. Characters trained on: the median.",
        "",
        "| change | " + " | ".join(MEASURES.values()) + " | characters |",
        "|---" * (len(MEASURES) + 2) + "|",
    ]
    for name in chars:
        cells = [_cell(gains[measure][name], name in comparable(chars)[measure]) for measure in MEASURES]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {chars[name] / 1e6:.2f} M |")
    return "\n".join(lines) + "\n"


def comparable(names: Iterable[str]) -> dict[str, set[str]]:
    """The rungs whose measure can be compared with that of the rung before: where windows as trained are as long."""
    pairs = list(pairwise((name, rungs()[name]) for name in names))
    length = {name: rung["training.stages"][-1]["seq_len"] for name, rung in rungs().items()}
    return {
        "loss.valid": {name for _, (name, _) in pairs},
        "loss.valid_at_seq_len": {name for (before, _), (name, _) in pairs if length[name] == length[before]},
    }


def _cell(gain: Paired, is_comparable: bool) -> str:
    change = f" ({gain.difference:+.3f} ± {gain.stderr:.3f}, {gain.verdict})" if is_comparable else ""
    return f"{gain.mean:.3f}{change}"


def save_picture(path: Path, gains: Gains, seconds: float) -> None:
    """Draw the losses going down the ladder, and write a PNG."""
    names = list(gains["loss.valid"])
    figure = Figure(figsize=(11, 0.32 * len(names) + 1.2), layout="constrained")
    for axes, (measure, title) in zip(figure.subplots(1, len(MEASURES), sharey=True), MEASURES.items(), strict=True):
        for y, name in enumerate(names):
            gain = gains[measure][name]
            color = "grey" if gain.is_tie else "C2" if gain.difference < 0 else "C3"
            color = color if name in comparable(names)[measure] else "lightgrey"
            axes.barh(y, gain.mean, color=color, xerr=gain.mean_stderr, error_kw={"linewidth": 1})
            axes.text(
                gain.mean + gain.mean_stderr + 0.05, y, f"{gain.mean:.2f}", verticalalignment="center", fontsize=8
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(0, 4.2)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("loss (nats)")
    figure.axes[0].invert_yaxis()
    figure.suptitle(
        f"After {seconds:g} s of training; green: better than the row above, grey: a tie, red: worse,"
        " light: not to be compared"
    )
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
