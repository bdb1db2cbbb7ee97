"""Tasks: texts with labels, which show what pretraining is worth. On the play, the best possible
score is known."""

from data.tasks import play, shakespeare  # register their tasks
from data.tasks.task import REPORT, TASKS, Task

__all__ = ["REPORT", "TASKS", "Task", "play", "shakespeare"]
