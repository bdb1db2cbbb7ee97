"""Writes matplotlib figures to disk."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from runs.files import write_atomically


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG, atomically. Raises OSError."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
