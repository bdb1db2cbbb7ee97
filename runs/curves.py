"""Plots a run: its curves during training, and its measurements by `evaluate.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runs.figures import label_ends, plain_text, save_figure

Rows = Sequence[Mapping[str, Any]]  # of metrics.jsonl


def unit_of(row: Mapping[str, Any]) -> str:
    """The unit of a loss: "token" if the row, or the results of evaluate.py, have bits per
    character."""
    return "token" if "bits_per_character" in row else "character"


def draw_losses(axes: Axes, rows: Rows) -> None:
    """Plot training loss (thin), validation loss (thick, with a band of one standard error) and the
    any-order bound, if the rows have one (dashed), against time. A value that is null leaves a gap.
    """
    seconds, train, valid, error = (
        np.array([row[key] for row in rows], dtype=float)  # null becomes nan
        for key in ("seconds", "loss.train", "loss.valid", "loss.valid_stderr")
    )
    (line,) = axes.plot(seconds, valid, ".-", label="validation")
    axes.fill_between(
        seconds, valid - error, valid + error, color=line.get_color(), alpha=0.2, linewidth=0
    )
    axes.plot(
        seconds, train, ".-", color=line.get_color(), alpha=0.5, linewidth=1, label="training"
    )
    if any("loss.bound" in row for row in rows):
        bounds = [row.get("loss.bound") for row in rows]
        axes.plot(
            seconds,
            np.array(bounds, dtype=float),
            ".--",
            color=line.get_color(),
            label="any-order bound",
        )


def draw_reference_lines(axes: Axes, lines: Mapping[str, float]) -> None:
    """Draw a horizontal line per reference loss, such as that of the unigram model, with its name
    and value.

    Axes with curves end at 1.1 times the 95th percentile of these, because a few high losses would
    squeeze the others.
    """
    drawn = np.array(
        [y for curve in axes.lines for y in np.asarray(curve.get_ydata(), dtype=float)]
    )
    known = drawn[np.isfinite(drawn)]
    top = 1.1 * float(np.quantile(known, 0.95)) if len(known) else None
    style: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": "small", "color": "dimgrey"}
    for name, loss in lines.items():
        if top is None or loss < top:
            axes.axhline(loss, color="grey", linestyle="--", linewidth=1)
            text = f"{plain_text(name)} {loss:.2f} "
            # x in shares of the axis
            axes.text(1, loss, text, transform=axes.get_yaxis_transform(), **style)
    if top is not None:
        axes.set_ylim(top=top)


def draw_prediction(axes: Axes, rows: Rows, predicted: Rows) -> None:
    """Draw the losses that a plan predicts, with their intervals, where the run has as many
    characters."""
    shown = [row for row in predicted if row["chars"] <= 1.01 * rows[-1]["chars"]]
    chars, reached = ([0, *(row[name] for row in rows)] for name in ("chars", "seconds"))
    seconds = np.interp([row["chars"] for row in shown], chars, reached)
    low, loss, high = ([row[name] for row in shown] for name in ("low", "loss", "high"))
    axes.plot(seconds, loss, "--", color="black", linewidth=1, label="planned (80%)")
    axes.fill_between(seconds, low, high, color="grey", alpha=0.3, linewidth=0)


def save_curves(
    path: Path, rows: Rows, reference_lines: Mapping[str, float], title: str, predicted: Rows = ()
) -> None:
    """Draw losses, learning rate and sequence length of one run below each other, and write a PNG.
    Raises OSError."""
    figure = Figure(figsize=(8, 8), layout="constrained")
    losses, rates, lengths = figure.subplots(3, 1, sharex=True, height_ratios=[4, 1, 1])
    draw_losses(losses, rows)
    if rows and predicted:
        draw_prediction(losses, rows, predicted)
    drawn = list(losses.lines)
    draw_reference_lines(losses, reference_lines)
    losses.set_ylabel(f"loss (nats per masked {unit_of(rows[-1] if rows else {})})")
    losses.set_title(plain_text(title))
    label_ends(losses, drawn)
    seconds = [row["seconds"] for row in rows]
    rates.plot(seconds, [row["learning_rate"] for row in rows], ".-")
    rates.set_ylabel("learning rate")
    lengths.step(seconds, [row["seq_len"] for row in rows], ".-", where="pre")
    lengths.set_ylabel("sequence length")
    lengths.set_ylim(bottom=0)
    lengths.set_xlabel("training time (seconds)")
    save_figure(path, figure)


def save_measures(path: Path, results: Mapping[str, Any], title: str) -> None:
    """Plot loss by masking rate, beside the counting baseline, and accuracy by class and by
    distance; write a PNG."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    rates, classes, distances = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    names = list(results["masking_rates"])
    rates.plot(
        names, [results["masking_rates"][name]["loss"] for name in names], "o-", label="model"
    )
    if counting := results.get("counting"):  # applies to characters only
        rates.plot(
            names, [counting[name]["loss"] for name in names], "o:", color="grey", label="counting"
        )
    rates.set_xlabel("masking rate")
    unit = unit_of(results)
    rates.set_ylabel(f"loss (nats per masked {unit})")
    rates.set_ylim(bottom=0)
    label_ends(rates, rates.lines)
    for axes, table, label in (
        (classes, "by_class", f"class of the masked {unit}"),
        (distances, "by_distance", f"nearest visible {unit}"),
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
