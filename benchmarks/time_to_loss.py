"""Seconds of training until the validation loss reaches given values: Folio's preset against its peers.

python -m benchmarks.time_to_loss [--seeds 1] [--seconds 600] [--search]

The peers are Hugging Face's BERT and ModernBERT, which train for all the seconds; their schedules are as long. Folio
trains for 0.3 of them (180, as its preset `quick` says), and the annotated recipe for 0.2, because it stays on its
plateau. All are trained by the same loop on the same text, and judged by the protocol. Only training time counts.
Between two evaluations the loss is interpolated linearly. --search finds the characters per step and the learning rate
of each peer in runs of 75 seconds (20 on CUDA). Without results of such a search on a machine of the same kind, with
CUDA or without, it runs first.
"""

import json
import statistics
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from benchmarks.command import RESULTS, device_preset, recipe, results_path, run_benchmark
from benchmarks.report import Report, by_variant
from benchmarks.trials import COMMON, Trial, last_losses, run_trials, trials_of
from configs.command_line import PRESETS, read_config
from runs.run_folder import RunFolder

LOSSES = (3.0, 2.0, 1.6, 1.4, 1.0, 0.8)
FOLIO = "Folio"
PEERS = recipe("peers")
SECONDS_PER_SEARCHED_RUN = {"quick": 75.0, "gpu": 20.0}
SHARES = {FOLIO: 0.3, "annotated": 0.2, **dict.fromkeys(PEERS["peers"], 1.0)}  # of the seconds
EVALUATIONS = {FOLIO: 12, "annotated": 2, **dict.fromkeys(PEERS["peers"], 10)}


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, and write the table and the figure."""
    preset = device_preset()
    searched = None if options.search else earlier_search(preset)
    searched = searched or search(preset)
    best = winners(searched["trials"])
    peers = {peer: searched_recipes(preset)[variant] for peer, variant in best.items()}
    trials = trials_of(recipes(peers, options.seconds), COMMON, options.seeds)
    seconds_per_run = 1.1 * options.seconds * statistics.mean(SHARES.values()) + 50  # with evaluations and the start
    measured = run_trials(path, trials, measure, seconds_per_run, preset)
    found = f"{'; '.join(best.values())} (searched on {searched['machine']['machine']})"
    report(measured["trials"], preset, found).save(path, measured)


def recipes(peers: Mapping[str, Mapping[str, Any]], seconds: float) -> dict[str, dict[str, Any]]:
    """The preset itself, the annotated recipe, and each peer with its keys."""
    annotated = read_config(PRESETS / "annotated.yaml")
    del annotated["training.max_chars"]
    keys: dict[str, Mapping[str, Any]] = {FOLIO: {}, "annotated": annotated, **peers}
    return {
        name: {**keys[name], "training.max_seconds": share * seconds, "training.evaluations": EVALUATIONS[name]}
        for name, share in SHARES.items()
    }


def searched_recipes(preset: str) -> dict[str, dict[str, Any]]:
    """Every peer with all values of the search, by variant."""
    common, lists = PEERS["keys"] | PEERS["sizes"][preset], PEERS["search"][preset]
    return {
        f"{peer}: {', '.join(map(str, values))}": common | keys | dict(zip(lists, values, strict=True))
        for peer, keys in PEERS["peers"].items()
        for values in product(*lists.values())
    }


def search(preset: str) -> dict[str, Any]:
    """Train every variant of the search; returns the results and writes them."""
    seconds = SECONDS_PER_SEARCHED_RUN[preset]
    return run_trials(results_path("peer_search"), search_trials(preset), last_losses, seconds + 30, preset)


def search_trials(preset: str) -> list[Trial]:
    common = COMMON | {"training.max_seconds": SECONDS_PER_SEARCHED_RUN[preset]}
    return trials_of(searched_recipes(preset), common, 1)


def earlier_search(preset: str) -> dict[str, Any] | None:
    """The results of the same search, this machine preferred. CPUs and GPUs have different searches."""
    own = results_path("peer_search").with_suffix(".json")
    paths = sorted(RESULTS.glob("*/peer_search.json"), key=lambda path: (path != own, path))
    wanted = search_trials(preset)
    for results in (json.loads(path.read_text()) for path in paths):
        if [{key: row[key] for key in wanted[0]} for row in results["trials"]] == wanted:
            return results
    return None


def winners(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The variant of each peer with the lowest loss in the search."""
    by_loss = sorted(rows, key=lambda row: row["results"]["loss.valid"])
    variants = [row["variant"] for row in by_loss]
    return {peer: next(each for each in variants if each.startswith(f"{peer}: ")) for peer in PEERS["peers"]}


def measure(run: RunFolder) -> dict[str, Any]:
    """The last losses, counting, and the whole curve of (seconds, loss)."""
    curve = [(row["seconds"], row["loss.valid"]) for row in run.metrics()]
    return last_losses(run) | {"counting": run.reference_lines()["counting"], "curve": curve}


def seconds_to(loss: float, curve: Sequence[tuple[float, float]]) -> float | None:
    """When a curve of (seconds, loss) first reaches `loss`; None if it never does."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, higher), (after, lower) in pairwise(curve):
        if lower <= loss < higher:
            return before + (after - before) * (higher - loss) / (higher - lower)
    return None


def report(rows: Sequence[Mapping[str, Any]], preset: str, searched: str) -> Report:
    """Each recipe against Folio's, and the median of its seconds to each loss."""
    of_peers = [min(loss for _, loss in row["results"]["curve"]) for row in rows if row["variant"] in PEERS["peers"]]
    counting = rows[0]["results"]["counting"]
    losses = {str(loss): loss for loss in LOSSES} | {"counting": counting, "a peer's best": min(of_peers)}
    columns: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for variant, by_seed in by_variant(rows).items():
        runs = list(by_seed.values())
        first = max(run["curve"][0][0] for run in runs)
        for name, loss in sorted(losses.items(), key=lambda item: -item[1]):
            columns[f"to {name}"][variant] = _median([seconds_to(loss, run["curve"]) for run in runs], first)
        columns["seconds"][variant] = f"{statistics.median(run['seconds'] for run in runs):.0f}"
        columns["evaluations"][variant] = str(len(runs[0]["curve"]))
        columns["compiled"][variant] = "yes" if all(r["compiled"] for r in rows if r["variant"] == variant) else "no"
    return Report(
        title="Time to loss",
        note=f"Seconds of training on tiny Shakespeare until `loss.valid` reaches a value, median over seeds, and the"
        f" loss at the end. Folio is the preset `{preset}`; counting is {counting:.3f}, and the"
        f" lowest loss of any peer is {min(of_peers):.3f}. The"
        f" characters per step and the learning rate of each peer won a search with runs of"
        f" {SECONDS_PER_SEARCHED_RUN[preset]:g} seconds: {searched}. Times are interpolated linearly between"
        " evaluations, which makes a time longer by less than the time between two of them; ≤ marks a loss that the"
        " first evaluation was already below.",
        base=FOLIO,
        bases={row["variant"]: FOLIO for row in rows if row["variant"] != FOLIO},
        losses={"loss.valid": "loss at the end"},
        columns=columns,
    )


def _median(seconds: Sequence[float | None], first: float) -> str:
    """The median in words; `never` if most seeds never reached the loss."""
    value = statistics.median(float("inf") if each is None else each for each in seconds)
    return "never" if value == float("inf") else f"{'≤ ' * (value <= first)}{value:.0f} s"


if __name__ == "__main__":
    flag = {"action": "store_true", "help": "search the batch size and learning rate of the peers again"}
    run_benchmark(main, {"search": flag}, unnamed={"search"}, seeds=1, seconds=600.0)
