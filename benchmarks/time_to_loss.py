"""How many seconds of training until the model is so good: Folio's preset, the annotated recipe, Hugging Face's BERT.

python -m benchmarks.time_to_loss [--seeds 1] [--seconds 600] [--search]

All are trained for 600 seconds by the same loop on the same text, and judged by the protocol; only the seconds of
training count. Between two evaluations a loss is taken to fall in a straight line. --search finds the batch and
learning rate of Hugging Face's BERT anew, in 60 seconds each (20 on CUDA), and keeps its winner with the results. That
comes first where no machine of the kind, with CUDA or without, has been searched on yet.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.machine import RESULTS, machine, results_folder, results_name
from benchmarks.trials import run_trials, trials_of
from configs.command_line import PRESETS, read_config
from configs.experiment import best_device
from runs.figures import save_figure
from runs.files import write_atomically
from runs.run_folder import RunFolder

SECONDS = 600.0
LOSSES = {"3.0": 3.0, "2.0": 2.0, "1.6": 1.6, "1.4": 1.4, "counting": None, "1.10": 1.10}
COMMON = {"data.corpus": "tiny_shakespeare", "sample.every_evaluations": 0}
BERT = {
    "model.architecture": "hugging_face",
    "model.n_layers": 6,
    "model.n_heads": 8,
    "model.dropout": 0.1,
    # As its authors trained it: long windows for the last tenth only, so that it knows their positions.
    "training.stages": [{"until": 0.9, "seq_len": 128}, {"until": 1.0, "seq_len": 256}],
    "training.optimizer": "adamw",
    "training.weight_decay": 0.01,
    "training.warmup": 0.05,
    "training.decay": 0.95,
    "training.final_learning_rate": 0.0,
    "training.compile": False,
}
SEARCHED = {
    device: {
        f"{chars // 128} x 128, {rate:g}": {"training.chars_per_step": chars, "training.learning_rate": rate}
        for chars in sizes
        for rate in (5e-4, 1e-3, 2e-3, 4e-3)
    }
    for device, sizes in {"cpu": (1024, 2048, 4096), "cuda": (8192, 32_768, 131_072)}.items()
}
PRESET = {"cpu": "quick", "cuda": "gpu"}
SECONDS_OF_A_SEARCHED_RUN = {"cpu": 60.0, "cuda": 20.0}
SECONDS_BETWEEN_EVALUATIONS = {
    "cpu": {"Folio": 50.0, "annotated": 300.0, "Hugging Face BERT": 150.0},
    "cuda": {"Folio": 2.0, "annotated": 10.0, "Hugging Face BERT": 5.0},
}


def main(arguments: list[str]) -> int:
    """Train what is missing, and write the table and the figure; returns the exit code."""
    parser = argparse.ArgumentParser(description="How many seconds of training until the model is so good?")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--search", action="store_true", help="find the batch and learning rate of BERT anew")
    options = parser.parse_args(arguments)
    folder = results_folder()
    if options.search or not searches():
        search(folder / "bert_search.json")
    options.search = False  # how BERT's keys were found stands in the table
    name = results_name("time_to_loss", parser, options)
    found, keys = winner()
    trials = trials_of(recipes(keys, options.seconds), COMMON, options.seeds)
    preset = PRESET[kind()]
    path = folder / f"{name}.json"
    a_run = 1.13 * options.seconds + 50  # with evaluations, compilation and the start
    rows = run_trials(path, trials, measure, a_run, "benchmarks.models", preset)
    table = report(rows, preset, options.seconds, found)
    print("\n" + table)
    write_atomically(folder / f"{name}.md", table.encode())
    save_picture(folder / f"{name}.png", rows)
    return 0


def recipes(bert: Mapping[str, Any], seconds: float) -> dict[str, dict[str, Any]]:
    """Folio's preset, the annotated one, and BERT with these keys. The slower a model is, the rarer it is evaluated."""
    annotated = read_config(PRESETS / "annotated.yaml")
    del annotated["training.max_chars"]
    keys = {"Folio": {}, "annotated": annotated, "Hugging Face BERT": BERT | dict(bert)}
    return {
        name: keys[name] | {"training.max_seconds": seconds, "training.evaluations": max(1, int(seconds / between))}
        for name, between in SECONDS_BETWEEN_EVALUATIONS[kind()].items()
    }


def search(path: Path) -> None:
    """Train BERT with every batch and learning rate that is searched, and keep which is best."""
    seconds = SECONDS_OF_A_SEARCHED_RUN[kind()]
    keys = COMMON | BERT | {"training.evaluations": 1, "training.max_seconds": seconds}
    rows = run_trials(
        path, trials_of(SEARCHED[kind()], keys, 1), final_loss, seconds + 30, "benchmarks.models", PRESET[kind()]
    )
    best = min(rows, key=lambda row: row["results"]["loss.valid"])
    print(f"best for Hugging Face's BERT: {best['variant']}")


def searches() -> list[Path]:
    """The searches that there are on devices of this kind, this machine's first."""
    own = results_folder() / "bert_search.json"
    paths = sorted(RESULTS.glob("*/bert_search.json"), key=lambda path: (path != own, path))
    return [path for path in paths if json.loads(path.read_text())["trials"][0]["variant"] in SEARCHED[kind()]]


def winner() -> tuple[str, dict[str, Any]]:
    """The search's winner, in words and as keys: this machine's, or that of whichever machine was searched on."""
    kept = json.loads(searches()[0].read_text())
    best = min(kept["trials"], key=lambda row: row["results"]["loss.valid"])["variant"]
    return f"{best} (searched on {kept['machine']['machine']})", dict(SEARCHED[kind()][best])


def kind() -> str:
    """Of the device: what is searched on one of them is of no use on the other."""
    return "cuda" if best_device() == "cuda" else "cpu"


def final_loss(run: RunFolder) -> dict[str, Any]:
    """How a run of the search has ended."""
    return {"loss.valid": run.metrics()[-1]["loss.valid"]}


def measure(run: RunFolder) -> dict[str, Any]:
    """The seconds until each loss was reached, and the whole curve."""
    rows = run.metrics()
    counting = run.reference_lines()["counting"]
    curve = [(row["seconds"], row["loss.valid"]) for row in rows]
    reached = {name: seconds_to(counting if loss is None else loss, curve) for name, loss in LOSSES.items()}
    return {
        "seconds_to": reached,
        "counting": counting,
        "loss.valid": rows[-1]["loss.valid"],
        "chars": rows[-1]["chars"],
        "curve": curve,
    }


def seconds_to(loss: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """When a curve of (seconds, loss) first comes down to `loss`; None where it never does."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, higher), (after, lower) in pairwise(curve):
        if lower <= loss < higher:
            return before + (after - before) * (higher - loss) / (higher - lower)
    return None


def report(rows: Sequence[Mapping[str, Any]], preset: str, seconds: float, bert: str) -> str:
    """The table as Markdown: the median over seeds."""
    here = machine()
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    names = list(dict.fromkeys(row["variant"] for row in rows))
    compiled = [name for name in names if all(row["compiled"] for row in rows if row["variant"] == name)]
    lines = [
        "# Time to loss",
        "",
        f"Seconds of training on tiny Shakespeare until `loss.valid` is not above a value, median of"
        f" {len(rows) // len(names)} seed(s), each stopped at {seconds:g}; {here['machine']}, {here['threads']}"
        f" thread(s), torch {here['torch']}, commit {commits}, {here['date']}."
        f" Counting is {rows[0]['results']['counting']:.3f}. Folio is the preset `{preset}`. Compiled:"
        f" {', '.join(compiled) or 'none'}. BERT's batch and learning rate are the best of a search with runs of"
        f" {SECONDS_OF_A_SEARCHED_RUN[kind()]:g} seconds: {bert}.",
        "Straight lines between evaluations, of which there are "
        + ", ".join(f"{len(row['results']['curve'])} ({row['variant']})" for row in rows if row["seed"] == 0)
        + ": a curve that falls ever more slowly is below such a line, so rarer ones make a time longer, by less than"
        " the time between two of them. What the first one found is marked ≤.",
        "",
        "| recipe | " + " | ".join(LOSSES) + " | at the end | characters |",
        "|---" * (len(LOSSES) + 3) + "|",
    ]
    for name in names:
        results = [row["results"] for row in rows if row["variant"] == name]
        first = max(result["curve"][0][0] for result in results)
        cells = [_median([result["seconds_to"][loss] for result in results], first) for loss in LOSSES]
        loss = statistics.median(result["loss.valid"] for result in results)
        chars = statistics.median(result["chars"] for result in results)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {loss:.3f} | {chars / 1e6:.1f} M |")
    return "\n".join(lines) + "\n"


def _median(seconds: Sequence[float | None], first: float) -> str:
    """Never, where most seeds never came there; at most, where that was by the first evaluation."""
    value = statistics.median(float("inf") if each is None else each for each in seconds)
    return "never" if value == float("inf") else f"{'≤ ' * (value <= first)}{value:.0f} s"


def save_picture(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the curves over the seconds of training, and write a PNG."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row["variant"] for row in rows))
    for row in rows:
        color = f"C{names.index(row['variant'])}"
        seconds, losses = zip(*row["results"]["curve"], strict=True)
        axes.plot(seconds, losses, ".-", color=color, label=row["variant"] if row["seed"] == 0 else None)
    axes.axhline(rows[0]["results"]["counting"], color="grey", linestyle=":", label="counting")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("loss.valid (nats)")
    axes.legend()
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
