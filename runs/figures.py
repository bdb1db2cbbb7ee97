"""The look of matplotlib figures, text on them, and figures as PNG files."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_file
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runs.files import write_atomically
from runs.terminal import in_one_line

rc_file(Path(__file__).with_name("folio.mplstyle"), use_default_template=False)


def plain_text(text: str, limit: int = 64) -> str:
    """Prepare a name for a figure: no math between `$`, no control characters or surrogates, and
    not too long."""
    escaped = in_one_line(text)
    if len(escaped) > limit:
        escaped = f"…{escaped[-limit:]}"
    return escaped.replace("$", r"\$")


def label_ends(axes: Axes, lines: Iterable[Any]) -> None:
    """Write the label and the last value of each line beside its end, apart from each other, in
    place of a legend."""
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []

    for line in lines:
        points = line.get_xydata()
        if line.get_label()[0] != "_" and len(points):
            height = to_axes.transform(points[-1])[1]
            if np.isfinite(height):
                ends.append((height, line, points[-1][1]))

    place = -1.0
    for height, line, value in sorted(ends, key=lambda end: end[0]):
        place = max(min(height, 1.0), place + 0.05)  # the end of a line may be cut off
        text = f" {line.get_label()} {value:.3f}"
        axes.text(
            1,
            place,
            text,
            color=line.get_color(),
            va="center",
            transform=axes.transAxes,
        )


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG, atomically. Raises OSError."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
