"""Plots the measurements of `evaluate.py`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from runs.figures import plain_text, save_figure


def save_measures(path: Path, results: Mapping[str, Any], title: str) -> None:
    """Plot loss by masking rate, beside the counting baseline, and accuracy by class and by distance; write a PNG."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    rates, classes, distances = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    names = list(results["masking_rates"])
    rates.plot(names, [results["masking_rates"][name]["loss"] for name in names], "o-", label="model")
    rates.plot(names, [results["counting"][name]["loss"] for name in names], "o:", color="grey", label="counting")
    rates.set_xlabel("masking rate")
    rates.set_ylabel("loss (nats per masked character)")
    rates.set_ylim(bottom=0)
    rates.legend()
    for axes, table, label in (
        (classes, "by_class", "class of the masked character"),
        (distances, "by_distance", "nearest visible character"),
    ):
        bars = {name: row["accuracy"] for name, row in results[table].items() if row["n"]}
        drawn = axes.bar(list(bars), list(bars.values()))
        axes.bar_label(drawn, fmt="{:.0%}", fontsize="small")
        axes.set_ylim(0, 1.08)
        axes.set_xlabel(label)
        axes.tick_params(axis="x", labelrotation=20)
    classes.set_ylabel("accuracy")
    figure.suptitle(plain_text(title))
    save_figure(path, figure)
