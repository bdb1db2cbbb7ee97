"""Texts with labels to fine-tune on: the speakers of a play, or a CSV file."""

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.keys import ConfigError
from runs.files import read_bytes

SPEAKER = "speaker"
SPEAKERS = 10
TRAINING_SHARE = 0.7  # of the texts of each label, in the order of their source
INNER_SHARE = 0.8  # of the training texts of each label; the others choose settings
FEWEST = 5  # training texts per label
Rows = Sequence[tuple[str, str, str]]  # (text, label, split)
HEADING = re.compile(r"([^\n]+):\n(.+)", re.DOTALL)


@dataclass(frozen=True)
class Task:
    """Texts with labels, split so that no text is in both parts."""

    name: str
    training: list[tuple[str, str]]  # (text, label)
    test: list[tuple[str, str]]
    n_cut: int = 0  # texts that were longer

    @property
    def labels(self) -> list[str]:
        return sorted({label for _, label in self.training})

    @property
    def file_name(self) -> str:
        """A name for results; CSV files with the same name and different texts have different ones."""
        if self.name == SPEAKER:
            return SPEAKER
        digest = hashlib.sha256(repr((self.training, self.test)).encode()).hexdigest()
        return f"{Path(self.name).stem}-{digest[:8]}"


def speakers(text: str, longest: int) -> Task:
    """Speeches of the 10 most frequent speakers of a play, without their headings; the labels are the speakers.

    A speech is a paragraph after a line with the speaker and a colon, cut after `longest` characters. The first and the
    last paragraph may be incomplete and are left out. Raises ConfigError if there are too few speeches.
    """
    found = [HEADING.fullmatch(paragraph) for paragraph in text.split("\n\n")[1:-1]]
    speeches = [(match[2], match[1], "") for match in found if match]
    frequent = {speaker for speaker, _ in Counter(label for _, label, _ in speeches).most_common(SPEAKERS)}
    if len(frequent) < 2:
        raise ConfigError("speaker: the text has no speeches of two speakers (a line NAME: and the text below it)")
    return _task(SPEAKER, [row for row in speeches if row[1] in frequent], longest)


def from_csv(path: Path, longest: int) -> Task:
    """The rows of a CSV file with columns `text`, `label` and optionally `split` (train or test).

    Texts are cut after `longest` characters. Raises ConfigError if the file is missing or not as above.
    """
    try:
        content = read_bytes(path).decode("utf-8-sig")  # Excel writes a byte order mark
        reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {path} ({reason}): give a CSV file, or {SPEAKER}") from error
    if not columns.count("text") == columns.count("label") == 1 or columns.count("split") > 1:
        needed = "one column text and one column label, in lower case and separated by commas"
        raise ConfigError(f"{path} needs {needed}; it has {', '.join(columns) or 'none'}")
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise ConfigError(f"row {number} of {path} has too many columns: quote texts that contain commas")
        if not row["text"] or not row["label"] or row.get("split") not in (None, "", "train", "test"):
            raise ConfigError(f"row {number} of {path}: text and label must not be empty, split must be train or test")
    return _task(path.name, [(row["text"], row["label"], row.get("split") or "") for row in rows], longest)


def inner(task: Task) -> Task:
    """The training texts as a task of their own, to choose settings with."""
    return _task(task.name, [(text, label, "") for text, label in task.training], None, INNER_SHARE, fewest=1)


def _task(name: str, rows: Rows, longest: int | None, share: float = TRAINING_SHARE, fewest: int = FEWEST) -> Task:
    """Rows (text, label, split). Of those without a split, the first `share` of each label is for training.

    A test text that is also a training text is left out. Raises ConfigError if a label has fewer than `fewest` training
    texts.
    """
    n_cut = sum(text != text[:longest] for text, _, _ in rows)
    rows = list(dict.fromkeys((text[:longest], label, split) for text, label, split in rows))
    total, seen = Counter(label for _, label, split in rows if not split), Counter[str]()
    training: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for text, label, split in rows:
        seen[label] += not split
        is_training = split == "train" or (not split and seen[label] <= share * total[label])
        (training if is_training else test).append((text, label))
    texts = {text for text, _ in training}
    test = [(text, label) for text, label in test if text not in texts]
    counts, labels = Counter(label for _, label in training), sorted({label for _, label, _ in rows})
    if rare := [label for label in labels if counts[label] < fewest]:
        raise ConfigError(
            f"{name}: {len(rare)} of {len(labels)} labels have fewer than {fewest} training texts, such as {rare[0]}"
            f" with {counts[rare[0]]}: merge such labels, and group numbers into classes"
        )
    if len(labels) < 2 or not test:
        raise ConfigError(f"{name}: two labels are needed, and a test text that is not a training text")
    return Task(name, training, test, n_cut)
