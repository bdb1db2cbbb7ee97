"""Figures on their way to the disk."""

from pathlib import Path

from matplotlib.figure import Figure


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG; at every moment `path` is the old picture or the new one. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    figure.savefig(temporary, format="png", dpi=120)
    temporary.replace(path)
