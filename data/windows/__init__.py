"""Training windows, cut out of the text."""

from data.windows.windows import WindowBatch, Windows

__all__ = ["WindowBatch", "Windows"]
