"""The curves of a run as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runs.figures import save_figure

Rows = Sequence[Mapping[str, Any]]


def draw_losses(axes: Axes, rows: Rows, label: str = "", color: str | None = None) -> None:
    """Training loss (thin) and validation loss (thick, with a band of one standard error) against time."""
    seconds = [row["seconds"] for row in rows]
    valid = [row["loss.valid"] for row in rows]
    errors = [row["loss.valid_stderr"] for row in rows]
    name = f"{label} " if label else ""
    (line,) = axes.plot(seconds, valid, color=color, label=f"{name}validation")
    low = [loss - error for loss, error in zip(valid, errors, strict=True)]
    high = [loss + error for loss, error in zip(valid, errors, strict=True)]
    axes.fill_between(seconds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    train = [row["loss.train"] for row in rows]
    axes.plot(seconds, train, color=line.get_color(), alpha=0.5, linewidth=1, label=f"{name}training")


def draw_reference_lines(axes: Axes, lines: Mapping[str, float]) -> None:
    """Horizontal lines, such as the loss of guessing by frequency, each with its name and value."""
    for name, loss in lines.items():
        axes.axhline(loss, color="grey", linestyle=":", linewidth=1)
        axes.annotate(
            f"{name} {loss:.2f}",
            (1, loss),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 2),
            textcoords="offset points",
            horizontalalignment="right",
            fontsize="small",
            color="dimgrey",
        )


def save_curves(path: Path, rows: Rows, reference_lines: Mapping[str, float], title: str) -> None:
    """Draw losses, learning rate and sequence length of one run, one above the other, and write a PNG."""
    figure = Figure(figsize=(8, 8), layout="constrained")
    losses, rates, lengths = figure.subplots(3, 1, sharex=True, height_ratios=[4, 1, 1])
    draw_losses(losses, rows)
    draw_reference_lines(losses, reference_lines)
    losses.set_ylabel("loss (nats a masked character)")
    losses.set_title(title)
    losses.legend(loc="center right")
    seconds = [row["seconds"] for row in rows]
    rates.plot(seconds, [row["learning_rate"] for row in rows])
    rates.set_ylabel("learning rate")
    lengths.step(seconds, [row["seq_len"] for row in rows], where="pre")
    lengths.set_ylabel("sequence length")
    lengths.set_ylim(bottom=0)
    lengths.set_xlabel("seconds of training")
    save_figure(path, figure)
