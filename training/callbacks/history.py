"""Keeps the weights that a run has at certain points of its training."""

from collections.abc import Sequence
from pathlib import Path

from runs.files import reporting_os_errors
from runs.run_folder import RunFolder
from training.callbacks.callback import Callback
from training.checkpoint import Content
from training.loop import Trainer
from training.marks import Mark
from training.schedule import Stage


class History(Callback):
    """Writes `checkpoints/at-NAME.safetensors` after the step that reaches a mark.

    It has no state: a resumed run reaches the later marks, and writes those between its last
    checkpoint and its interruption again.
    """

    def __init__(self, run: RunFolder, marks: Sequence[Mark], tokens_per_word: float):
        self.run = run
        self.marks = marks
        self.tokens_per_word = tokens_per_word

    def stepped(self, trainer: Trainer, stage: Stage) -> None:
        reached = self.amounts(trainer.step, trainer.chars)
        n_chars = trainer.training_step.chars_per_step
        before = self.amounts(trainer.step - 1, trainer.chars - n_chars)
        for mark in self.marks:
            if before[mark.unit] < mark.amount <= reached[mark.unit]:
                with trainer.clock.stopped():
                    self.keep(trainer, mark)

    def amounts(self, step: int, chars: int) -> dict[str, float]:
        """The position of the training in each unit."""
        return {"steps": step, "tokens": chars, "words": chars / self.tokens_per_word}

    def keep(self, trainer: Trainer, mark: Mark) -> None:
        name = f"at-{mark.name}"
        content = Content.of(trainer.model.state_dict(), trainer.position())
        with reporting_os_errors(trainer.report, f"the checkpoint {name}"):
            self.write(content, self.run.checkpoints / f"{name}.safetensors")
            trainer.report(f"kept {name}: use it as {self.run.path.name}@{mark.name}")

    def write(self, content: Content, path: Path) -> None:
        content.save(path)

    def end(self, trainer: Trainer) -> None:
        reached = self.amounts(trainer.step, trainer.chars)
        missing = [each.name for each in self.marks if each.amount > reached[each.unit]]
        if missing:
            trainer.report(f"checkpoint.keep_at: not reached: {', '.join(missing)}")
