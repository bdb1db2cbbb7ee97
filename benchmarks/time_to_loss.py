"""Seconds of training until the validation loss reaches given values: Folio's preset, the annotated recipe, and BERT.

python -m benchmarks.time_to_loss [--seeds 1] [--seconds 600] [--search]

All are trained for the same time by the same loop on the same text, and judged by the protocol. Only training time
counts. Between two evaluations the loss is interpolated linearly. --search finds the batch size and learning rate of
Hugging Face's BERT in runs of 60 seconds (20 on CUDA) and keeps the best with the results. Without results of a search
on a machine of the same kind, with CUDA or without, the search runs first.
"""

import json
import statistics
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.command import RESULTS, device_preset, recipe, results_path, run_benchmark
from benchmarks.report import Report, by_variant
from benchmarks.trials import COMMON, last_losses, run_trials, trials_of
from configs.command_line import PRESETS, read_config
from runs.run_folder import RunFolder

LOSSES = {"3.0": 3.0, "2.0": 2.0, "1.6": 1.6, "1.4": 1.4, "counting": None, "1.10": 1.10}
FOLIO = "Folio"
SEARCHED = {  # preset -> recipe -> keys
    preset: {
        f"{chars // 128} x 128, {rate:g}": {"training.chars_per_step": chars, "training.learning_rate": rate}
        for chars in sizes
        for rate in (5e-4, 1e-3, 2e-3, 4e-3)
    }
    for preset, sizes in {"quick": (1024, 2048, 4096), "gpu": (8192, 32_768, 131_072)}.items()
}
SECONDS_PER_SEARCHED_RUN = {"quick": 60.0, "gpu": 20.0}
SECONDS_BETWEEN_EVALUATIONS = {  # more for slower models
    "quick": {FOLIO: 50.0, "annotated": 300.0, "Hugging Face BERT": 150.0},
    "gpu": {FOLIO: 2.0, "annotated": 10.0, "Hugging Face BERT": 5.0},
}


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, and write the table and the figure."""
    preset = device_preset()
    searched = None if options.search else earlier_search(preset)
    searched = searched or search(preset)
    best = min(searched["trials"], key=lambda row: row["results"]["loss.valid"])["variant"]
    trials = trials_of(recipes(preset, SEARCHED[preset][best], options.seconds), COMMON, options.seeds)
    seconds_per_run = 1.13 * options.seconds + 50  # with evaluations, compilation and the start
    measured = run_trials(path, trials, measure, seconds_per_run, preset)
    searched_on = f"{best} (searched on {searched['machine']['machine']})"
    report(measured["trials"], preset, options.seconds, searched_on).save(path, measured)


def recipes(preset: str, bert: Mapping[str, Any], seconds: float) -> dict[str, dict[str, Any]]:
    """The preset itself, the annotated recipe, and BERT with the keys `bert`."""
    annotated = read_config(PRESETS / "annotated.yaml")
    del annotated["training.max_chars"]
    keys = {FOLIO: {}, "annotated": annotated, "Hugging Face BERT": recipe("bert") | dict(bert)}
    return {
        name: keys[name] | {"training.max_seconds": seconds, "training.evaluations": max(1, int(seconds / between))}
        for name, between in SECONDS_BETWEEN_EVALUATIONS[preset].items()
    }


def search(preset: str) -> dict[str, Any]:
    """Train BERT with every batch size and learning rate of the search; returns the results and writes them."""
    seconds = SECONDS_PER_SEARCHED_RUN[preset]
    trials = trials_of(SEARCHED[preset], COMMON | recipe("bert") | {"training.max_seconds": seconds}, 1)
    return run_trials(results_path("bert_search"), trials, last_losses, seconds + 30, preset)


def earlier_search(preset: str) -> dict[str, Any] | None:
    """The results of a search on a machine of this kind, this machine preferred."""
    own = results_path("bert_search").with_suffix(".json")
    paths = sorted(RESULTS.glob("*/bert_search.json"), key=lambda path: (path != own, path))
    found = (json.loads(path.read_text()) for path in paths)
    return next((results for results in found if results["trials"][0]["variant"] in SEARCHED[preset]), None)


def measure(run: RunFolder) -> dict[str, Any]:
    """The last losses, the seconds until each loss was reached, and the whole curve."""
    counting = run.reference_lines()["counting"]
    curve = [(row["seconds"], row["loss.valid"]) for row in run.metrics()]
    reached = {name: seconds_to(counting if loss is None else loss, curve) for name, loss in LOSSES.items()}
    return last_losses(run) | {"seconds_to": reached, "counting": counting, "curve": curve}


def seconds_to(loss: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """When a curve of (seconds, loss) first reaches `loss`; None if it never does."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, higher), (after, lower) in pairwise(curve):
        if lower <= loss < higher:
            return before + (after - before) * (higher - loss) / (higher - lower)
    return None


def report(rows: Sequence[Mapping[str, Any]], preset: str, seconds: float, bert: str) -> Report:
    """Each recipe against Folio's, and the median of its seconds to each loss."""
    columns: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for variant, by_seed in by_variant(rows).items():
        runs = list(by_seed.values())
        first = max(run["curve"][0][0] for run in runs)
        for name in LOSSES:
            columns[f"to {name}"][variant] = _median([run["seconds_to"][name] for run in runs], first)
        columns["evaluations"][variant] = str(len(runs[0]["curve"]))
        columns["compiled"][variant] = "yes" if all(r["compiled"] for r in rows if r["variant"] == variant) else "no"
    return Report(
        title="Time to loss",
        note=f"Seconds of training on tiny Shakespeare until `loss.valid` reaches a value, median over seeds, and the"
        f" loss after {seconds:g} seconds. Folio is the preset `{preset}`; counting is"
        f" {rows[0]['results']['counting']:.3f}. BERT's batch size and learning rate won a search with runs of"
        f" {SECONDS_PER_SEARCHED_RUN[preset]:g} seconds: {bert}. Times are interpolated linearly between evaluations,"
        " which makes a time longer by less than the time between two of them; ≤ marks a loss that the first evaluation"
        " was already below.",
        base=FOLIO,
        bases={row["variant"]: FOLIO for row in rows if row["variant"] != FOLIO},
        losses={"loss.valid": f"loss after {seconds:g} s"},
        columns=columns,
    )


def _median(seconds: Sequence[float | None], first: float) -> str:
    """The median in words; `never` if most seeds never reached the loss."""
    value = statistics.median(float("inf") if each is None else each for each in seconds)
    return "never" if value == float("inf") else f"{'≤ ' * (value <= first)}{value:.0f} s"


if __name__ == "__main__":
    flag = {"action": "store_true", "help": "search the batch size and learning rate of BERT again"}
    run_benchmark(main, {"search": flag}, unnamed={"search"}, seeds=1, seconds=600.0)
