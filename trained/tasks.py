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
INNER_SHARE = 0.8  # of the training texts of each label; the others choose settings
FEWEST = 5  # training texts per label
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


def speakers(text: str, longest: int) -> Task:
    """Speeches of the 10 most frequent speakers of a play, without their headings; the labels are the speakers.

    A speech is a paragraph after a line with the speaker and a colon, cut after `longest` characters. The first and the
    last paragraph may be incomplete and are left out. Raises ConfigError if there are too few speeches.
    """
    found = [HEADING.fullmatch(paragraph) for paragraph in text.split("\n\n")[1:-1]]
    speeches = [(match[2][:longest], match[1]) for match in found if match]
    frequent = {speaker for speaker, _ in Counter(label for _, label in speeches).most_common(SPEAKERS)}
    if len(frequent) < 2:
        raise ConfigError("speaker: the text has no speeches of two speakers (a line NAME: and the text below it)")
    rows = [(speech, label, "") for speech, label in speeches if label in frequent]
    return _task("speaker", rows, TRAINING_SHARE, FEWEST)


def from_csv(path: Path, longest: int) -> Task:
    """The rows of a CSV file with columns `text`, `label` and optionally `split` (train or test).

    Texts are cut after `longest` characters. Raises ConfigError with one line if the file is missing or not as above.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # Excel writes a byte order mark
            reader = csv.DictReader(file, strict=True)
            columns = list(reader.fieldnames or ())
            if not {"text", "label"} <= set(columns):
                raise ConfigError(f"{path} needs the columns text and label; it has {', '.join(columns) or 'none'}")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read {path} ({getattr(error, 'strerror', None) or error})") from error
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise ConfigError(f"row {number} of {path} has too many columns: quote texts that contain commas")
        if not row["text"] or not row["label"] or row.get("split") not in (None, "", "train", "test"):
            raise ConfigError(f"row {number} of {path}: text and label must not be empty, split must be train or test")
    examples = [(row["text"][:longest], row["label"], row.get("split") or "") for row in rows]
    return _task(path.name, examples, TRAINING_SHARE, FEWEST)


def inner(task: Task) -> Task:
    """The training texts as a task of their own, to choose settings with."""
    return _task(task.name, [(text, label, "") for text, label in task.training], INNER_SHARE, 1)


def _task(name: str, rows: Iterable[tuple[str, str, str]], share: float, fewest: int) -> Task:
    """Rows (text, label, split). Of those without a split, the first `share` of each label is for training.

    A test text that is also a training text is left out. Raises ConfigError if a label has fewer than `fewest` training
    texts.
    """
    rows = list(dict.fromkeys(rows))
    total, seen = Counter(label for _, label, split in rows if not split), Counter[str]()
    training: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for text, label, split in rows:
        seen[label] += not split
        is_training = split == "train" or (not split and seen[label] <= share * total[label])
        (training if is_training else test).append((text, label))
    texts = {text for text, _ in training}
    test = [(text, label) for text, label in test if text not in texts]
    counts = Counter(label for _, label in training)
    for label in sorted({label for _, label, _ in rows}):
        if counts[label] < fewest:
            raise ConfigError(f"{name}: the label {label} has {counts[label]} training texts, but {fewest} are needed")
    if len(counts) < 2 or not test:
        raise ConfigError(f"{name}: two labels are needed, and a test text that is not a training text")
    return Task(name, training, test)
