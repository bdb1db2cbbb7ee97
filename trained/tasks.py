"""Texts with labels to fine-tune on: the speakers of a play, or a CSV file."""

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from configs.keys import ConfigError

SPEAKERS = 10
TRAINING_SHARE = 0.7  # of the texts of each label, in the order of their source
HEADING = re.compile(r"([^\n]+):\n(.+)", re.DOTALL)


@dataclass(frozen=True)
class Task:
    """Texts with labels, split so that no text is in both parts."""

    name: str
    training: list[tuple[str, str]]  # (text, label)
    test: list[tuple[str, str]]

    @property
    def labels(self) -> list[str]:
        return sorted({label for _, label in self.training})


def speakers(text: str) -> Task:
    """Who says a speech? Speeches of the 10 most frequent speakers of a play, without their headings.

    A speech is a paragraph whose first line is the speaker and a colon. The first and the last paragraph may be cut and
    are left out. Raises ConfigError if there are fewer than two speakers with speeches in both parts.
    """
    found = [HEADING.fullmatch(paragraph) for paragraph in text.split("\n\n")[1:-1]]
    speeches = [(match[2], match[1]) for match in found if match]
    frequent = {speaker for speaker, _ in Counter(label for _, label in speeches).most_common(SPEAKERS)}
    return _task("speaker", ((speech, label, "") for speech, label in speeches if label in frequent))


def from_csv(path: Path) -> Task:
    """The rows of a CSV file with columns `text`, `label` and, if wanted, `split` (train or test).

    Raises ConfigError with one line if the file is missing or has other columns or splits.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            if not {"text", "label"} <= set(reader.fieldnames or ()):
                raise ConfigError(
                    f"{path} needs the columns text and label; it has {', '.join(reader.fieldnames or ())}"
                )
            rows = [(row["text"], row["label"], row.get("split") or "") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path} ({getattr(error, 'strerror', None) or error})") from error
    for number, (text, label, split) in enumerate(rows, start=1):
        if not text or not label or split not in ("", "train", "test"):
            raise ConfigError(f"row {number} of {path}: text and label must not be empty, split must be train or test")
    return _task(path.name, rows)


def inner(task: Task) -> Task:
    """The training texts as a task: every fifth of them is for the test, to choose settings with."""
    held_out = task.training[::5]
    return Task(task.name, [example for i, example in enumerate(task.training) if i % 5], held_out)


def _task(name: str, rows: Iterable[tuple[str, str, str]]) -> Task:
    """Rows (text, label, split). Rows without a split go to training first, up to its share of each label."""
    rows = list(rows)
    total, seen = Counter(label for _, label, split in rows if not split), Counter[str]()
    training: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for text, label, split in rows:
        seen[label] += not split
        is_training = split == "train" or (not split and seen[label] <= TRAINING_SHARE * total[label])
        (training if is_training else test).append((text, label))
    known, texts = {label for _, label in training}, {text for text, _ in training}
    test = [(text, label) for text, label in test if text not in texts and label in known]
    if len(known) < 2 or not test:
        raise ConfigError(
            f"{name}: training needs texts of two labels, and the test a text that training does not have"
        )
    return Task(name, training, test)
