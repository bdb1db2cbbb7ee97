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


def column(rows: Rows, name: str) -> np.ndarray:
    """The values of a key in all rows. A value that is null or missing becomes NaN."""
    return np.array([row.get(name) for row in rows], dtype=float)


def draw_losses(axes: Axes, rows: Rows) -> None:
    """Plot training loss (thin), validation loss (thick, with a band of one standard error) and the
    any-order bound, if the rows have one (dashed), against time. A value that is null leaves a gap.
    """
    seconds = column(rows, "seconds")
    valid = column(rows, "loss.valid")
    error = column(rows, "loss.valid_stderr")
    (line,) = axes.plot(seconds, valid, ".-", label="validation")
    color = line.get_color()
    axes.fill_between(
        seconds, valid - error, valid + error, color=color, alpha=0.2, linewidth=0
    )
    train = column(rows, "loss.train")
    axes.plot(
        seconds, train, ".-", color=color, alpha=0.5, linewidth=1, label="training"
    )

    if any("loss.bound" in row for row in rows):
        bound = column(rows, "loss.bound")
        axes.plot(seconds, bound, ".--", color=color, label="any-order bound")


def draw_reference_lines(axes: Axes, lines: Mapping[str, float]) -> None:
    """Draw a horizontal line per reference loss, such as that of the unigram model, with its name
    and value.

    Axes with curves end at 1.1 times the 95th percentile of these, because a few high losses would
    squeeze the others.
    """
    curves = [np.asarray(curve.get_ydata(), dtype=float) for curve in axes.lines]
    values = np.concatenate([*curves, []])
    known = values[np.isfinite(values)]
    top = 1.1 * np.quantile(known, 0.95) if len(known) else np.inf

    for name, loss in lines.items():
        if loss < top:
            axes.axhline(loss, color="grey", linestyle="--", linewidth=1)
            axes.text(
                1,  # in shares of the axis
                loss,
                f"{plain_text(name)} {loss:.2f} ",
                transform=axes.get_yaxis_transform(),
                ha="right",
                va="bottom",
                fontsize="small",
                color="dimgrey",
            )

    if len(known):
        axes.set_ylim(top=top)


def draw_prediction(axes: Axes, rows: Rows, predicted: Rows) -> None:
    """Draw the losses that a plan predicts, with their intervals, where the run has as many
    characters."""
    chars = column(rows, "chars")

    shown = [row for row in predicted if row["chars"] <= 1.01 * chars[-1]]
    seconds = np.interp(
        column(shown, "chars"), [0, *chars], [0, *column(rows, "seconds")]
    )

    loss = column(shown, "loss")
    axes.plot(seconds, loss, "--", color="black", linewidth=1, label="planned (80%)")

    interval = (column(shown, "low"), column(shown, "high"))
    axes.fill_between(seconds, *interval, color="grey", alpha=0.3, linewidth=0)


def save_curves(
    path: Path,
    rows: Rows,
    reference_lines: Mapping[str, float],
    title: str,
    predicted: Rows = (),
) -> None:
    """Draw losses, learning rate and sequence length of one run below each other, and write a PNG.
    Raises OSError."""
    figure = Figure(figsize=(8, 8), layout="constrained")
    losses, rates, lengths = figure.subplots(3, 1, sharex=True, height_ratios=[4, 1, 1])

    draw_losses(losses, rows)

    if rows and predicted:
        draw_prediction(losses, rows, predicted)
    curves = list(losses.lines)

    draw_reference_lines(losses, reference_lines)
    losses.set_ylabel(f"loss (nats per masked {unit_of(rows[-1] if rows else {})})")
    losses.set_title(plain_text(title))
    label_ends(losses, curves)

    seconds = column(rows, "seconds")
    rates.plot(seconds, column(rows, "learning_rate"), ".-")
    rates.set_ylabel("learning rate")

    lengths.step(seconds, column(rows, "seq_len"), ".-", where="pre")
    lengths.set_ylabel("sequence length")
    lengths.set_ylim(bottom=0)
    lengths.set_xlabel("training time (seconds)")

    save_figure(path, figure)


def save_measures(path: Path, results: Mapping[str, Any], title: str) -> None:
    """Plot loss by masking rate, beside the counting baseline, and accuracy by class and by
    distance; write a PNG."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    rates, classes, distances = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    unit = unit_of(results)

    draw_rates(rates, results["masking_rates"], "o-", label="model")

    if "counting" in results:  # applies to characters only
        draw_rates(rates, results["counting"], "o:", label="counting", color="grey")
    rates.set_xlabel("masking rate")
    rates.set_ylabel(f"loss (nats per masked {unit})")
    rates.set_ylim(bottom=0)
    label_ends(rates, rates.lines)

    draw_accuracies(classes, results["by_class"], f"class of the masked {unit}")
    draw_accuracies(distances, results["by_distance"], f"nearest visible {unit}")
    classes.set_ylabel("accuracy")
    figure.suptitle(plain_text(title))
    save_figure(path, figure)


def draw_rates(axes: Axes, table: Mapping[str, Any], style: str, **look: Any) -> None:
    """Plot the loss of each masking rate."""
    axes.plot(list(table), column(list(table.values()), "loss"), style, **look)


def draw_accuracies(axes: Axes, table: Mapping[str, Any], label: str) -> None:
    """Draw the accuracy of each row that has characters as a bar."""
    bars = {name: row["accuracy"] for name, row in table.items() if row["n"]}
    drawn = axes.bar(list(bars), list(bars.values()))
    axes.bar_label(drawn, fmt="{:.0%}", fontsize="small")
    axes.set_ylim(0, 1.08)
    axes.set_xlabel(label)
    axes.tick_params(axis="x", labelrotation=20)
