"""Text on matplotlib figures, and figures as PNG files."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from runs.files import write_atomically


def plain_text(text: str, limit: int = 64) -> str:
    """Prepare a name for a figure: no math between `$`, no control characters or surrogates, and not too long."""
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return (escaped if len(escaped) <= limit else f"…{escaped[-limit:]}").replace("$", r"\$")


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as a PNG, atomically. Raises OSError."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
