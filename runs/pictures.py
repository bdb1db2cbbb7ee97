"""What `evaluate.py` measures, as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from runs.figures import save_figure


def save_measures(path: Path, results: Mapping[str, Any], title: str) -> None:
    """Loss by masking rate beside counting, and accuracy by class and by distance; written as a PNG."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    rates, classes, distances = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    names = list(results["masking_rates"])
    rates.plot(names, [results["masking_rates"][name]["loss"] for name in names], "o-", label="model")
    rates.plot(names, [results["counting"][name]["loss"] for name in names], "o:", color="grey", label="counting")
    rates.set_xlabel("masked")
    rates.set_ylabel("loss (nats a masked character)")
    rates.set_ylim(bottom=0)
    rates.legend()
    for axes, table, label in (
        (classes, "by_class", "hidden character"),
        (distances, "by_distance", "nearest visible"),
    ):
        bars = {name: row["accuracy"] for name, row in results[table].items() if row["n"]}
        drawn = axes.bar(list(bars), list(bars.values()))
        axes.bar_label(drawn, fmt="{:.0%}", fontsize="small")
        axes.set_ylim(0, 1.08)
        axes.set_xlabel(label)
        axes.tick_params(axis="x", labelrotation=20)
    classes.set_ylabel("share that is right")
    figure.suptitle(title)
    save_figure(path, figure)
