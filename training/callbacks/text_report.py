"""Reports what a run reads, when it starts."""

from collections.abc import Sequence

from training.callbacks.callback import Callback
from training.loop import Trainer


class TextReport(Callback):
    """Reports lines about the text before the first step."""

    def __init__(self, lines: Sequence[str]):
        self.lines = lines

    def begin(self, trainer: Trainer) -> None:
        for line in self.lines:
            trainer.report(line)
