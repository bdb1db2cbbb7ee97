"""The look of matplotlib figures, text on them, and figures as PNG files."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_file
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runs.files import write_atomically

rc_file(Path(__file__).with_name("folio.mplstyle"), use_default_template=False)


def plain_text(text: str, limit: int = 64) -> str:
    """Prepare a name for a figure: no math between `$`, no control characters or surrogates, and not too long."""
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return (escaped if len(escaped) <= limit else f"…{escaped[-limit:]}").replace("$", r"\$")


def label_ends(axes: Axes, lines: Sequence[Any]) -> None:
    """Write the name and the last value of each line beside its end, apart from each other, in place of a legend."""
    ends = [(float(line.get_ydata()[-1]), line) for line in lines if len(line.get_ydata())]
    labels = sorted((end for end in ends if np.isfinite(end[0])), key=lambda end: end[0])
    low, high = axes.get_ylim()
    apart, place = 0.05 * (high - low), low
    for value, line in labels:
        place = max(value, place + apart)
        name = f"  {line.get_label()} {value:.3f}"
        axes.text(1, place, name, color=line.get_color(), va="center", transform=axes.get_yaxis_transform())


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG, atomically. Raises OSError."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
