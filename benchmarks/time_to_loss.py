"""Seconds of training until the validation loss reaches given values: Folio's preset against its
peers.

python -m benchmarks.time_to_loss [--seeds 1] [--seconds 600] [--search]

The peers are Hugging Face's BERT and ModernBERT, which train for all the seconds; their schedules
are as long. Folio trains for 0.3 of them (180, as its preset `quick` says), and the annotated
recipe for 0.2, because it stays on its plateau. All are trained by the same loop on the same text,
and judged by the protocol. Only training time counts. Times between two evaluations are
interpolated linearly; ≤ marks a loss that the first evaluation was already below.

--search compares characters per step and learning rates of each peer in runs of 75 seconds (20 on
CUDA). The best ones are in benchmarks/recipes/peers.yaml, except for BERT: its second best wins in
600 seconds.
"""

import statistics
from argparse import Namespace
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks.command import device_preset, recipe, run_benchmark, save_results
from benchmarks.report import Results, by_variant, compared
from benchmarks.trials import Variants, last_losses, run_trials
from configs.command_line.command import PRESETS, read_config
from configs.keys import ConfigError
from runs.figures import label_ends, save_figure
from runs.run_folder import RunFolder

LOSSES = (3.0, 2.0, 1.6, 1.4, 1.0, 0.8)
LAST = {"loss.valid": "loss at the end"}
FOLIO = "Folio"
PEERS = recipe("peers")
# of the seconds
SHARES = {FOLIO: 0.3, "annotated": 0.2, **dict.fromkeys(PEERS["peers"], 1.0)}
EVALUATIONS = {FOLIO: 12, "annotated": 2, **dict.fromkeys(PEERS["peers"], 10)}


def main(options: Namespace, path: Path) -> None:
    preset = device_preset()
    if options.search:
        search(preset, path)
        return

    # with evaluations and the start
    seconds_per_run = 1.1 * options.seconds * statistics.mean(SHARES.values()) + 50
    variants = recipes(preset, options.seconds)
    rows = run_trials(path, variants, options.seeds, measure, seconds_per_run)
    results = by_variant(rows)
    table = compared(results, FOLIO, LAST, columns(results))
    save_results(path, table, seconds=options.seconds, trials=rows)
    save_figure(path.with_suffix(".png"), figure(results))


def recipes(preset: str, seconds: float) -> Variants:
    """The preset itself, the annotated recipe, and each peer with the best values of the search.

    Raises ConfigError if the peers have not been searched for this preset.
    """
    if preset not in PEERS["best"]:
        raise ConfigError(
            f"no best values for {preset} in benchmarks/recipes/peers.yaml: find them with --search"
        )

    annotated = read_config(PRESETS / "annotated.yaml") | {"training.max_chars": None}
    variants = {FOLIO: {}, "annotated": annotated}

    for peer, values in PEERS["best"][preset].items():
        variants[peer] = peer_keys(peer, preset) | values

    for name, share in SHARES.items():
        variants[name] = variants[name] | {
            "preset": preset,
            "training.max_seconds": share * seconds,
            "training.evaluations": EVALUATIONS[name],
        }

    return variants


def search(preset: str, path: Path) -> None:
    """Compare the values of the search for each peer."""
    seconds = PEERS["search_seconds"][preset]
    budget = {"preset": preset, "training.max_seconds": seconds}
    variants = {name: keys | budget for name, keys in searched(preset).items()}
    rows = run_trials(path, variants, 1, last_losses, seconds + 30)
    table = compared(by_variant(rows), "", LAST, {})
    save_results(path, table, trials=rows)


def searched(preset: str) -> Variants:
    """Every peer with all values of the search, by variant."""
    lists = PEERS["search"][preset]
    variants = {}
    for peer, values in product(PEERS["peers"], product(*lists.values())):
        name = f"{peer}: {', '.join(map(str, values))}"
        variants[name] = peer_keys(peer, preset) | dict(zip(lists, values, strict=True))
    return variants


def peer_keys(peer: str, preset: str) -> dict[str, Any]:
    """The keys of a peer apart from those that are searched."""
    return PEERS["keys"] | PEERS["sizes"][preset] | PEERS["peers"][peer]


def measure(run: RunFolder) -> dict[str, Any]:
    """The last losses, counting, and the whole curve of (seconds, loss)."""
    curve = [(row["seconds"], row["loss.valid"]) for row in run.metrics()]
    return last_losses(run) | {
        "counting": run.reference_lines()["counting"],
        "curve": curve,
    }


def seconds_to(loss: float, curve: Sequence[tuple[float, float]]) -> float:
    """When a curve of (seconds, loss) first reaches `loss`; infinity if it never does."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, higher), (after, lower) in pairwise(curve):
        if lower <= loss < higher:
            return before + (after - before) * (higher - loss) / (higher - lower)
    return inf


def columns(results: Results) -> dict[str, dict[str, str]]:
    """The median of each recipe's seconds to each loss, to counting, and to the lowest loss of any
    peer."""
    lowest = inf
    for peer in PEERS["peers"]:
        for run in results[peer].values():
            lowest = min(lowest, *(loss for _, loss in run["curve"]))

    losses = {f"{loss}": loss for loss in LOSSES}
    losses["counting"] = results[FOLIO][0]["counting"]
    losses[f"{lowest:.3f}, a peer's best"] = lowest

    runs_of = {name: list(runs.values()) for name, runs in results.items()}
    by_heading = {}

    for heading, loss in sorted(losses.items(), key=lambda item: -item[1]):
        times = {name: median_seconds(loss, runs) for name, runs in runs_of.items()}
        by_heading[f"to {heading}"] = times

    by_heading["seconds"] = {}
    for name, runs in runs_of.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        by_heading["seconds"][name] = f"{seconds:.0f}"

    return by_heading


def median_seconds(loss: float, runs: Sequence[Mapping[str, Any]]) -> str:
    """The median in words; `never` if at least half of the seeds never reached the loss."""
    value = statistics.median(seconds_to(loss, run["curve"]) for run in runs)
    first = max(run["curve"][0][0] for run in runs)
    return "never" if value == inf else f"{'≤ ' * (value <= first)}{value:.0f} s"


def figure(results: Results) -> Figure:
    """Validation loss over seconds of training, one curve per run."""
    drawn = Figure(figsize=(8, 4), layout="constrained")
    axes = drawn.subplots()

    for i, (variant, runs) in enumerate(results.items()):
        for seed, run in runs.items():
            label = None if seed else variant
            axes.plot(
                *zip(*run["curve"], strict=True), ".-", color=f"C{i}", label=label
            )

    axes.axhline(
        results[FOLIO][0]["counting"], color="grey", linestyle=":", label="counting"
    )
    axes.set(
        xscale="log",
        xlabel="seconds of training",
        ylabel="loss.valid (nats per masked character)",
    )
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    label_ends(axes, axes.lines)
    return drawn


if __name__ == "__main__":
    flag = {
        "action": "store_true",
        "help": "compare batch sizes and learning rates of the peers",
    }
    run_benchmark(main, seeds=1, seconds=600.0, search=flag)
