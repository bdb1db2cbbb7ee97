"""A user's task: a CSV file of texts and labels."""

import csv
import io
from collections import Counter
from pathlib import Path

from data.tasks.task import CHARACTER, PAIR, TEXT, Example, Task
from data.text.sources import CorpusError
from runs.reading import read_bytes

TRAINING_SHARE = 0.7  # of the texts of each label, in the order of the file
FEWEST = 5  # training texts per label
FORMS = ({"text", "label"}, {"text_a", "text_b", "label"}, {"text", "labels"})


def from_csv(path: Path) -> Task:
    """The task of a CSV file with the columns `text` and `label`; `text_a`, `text_b` and `label`
    for pairs of texts; or `text` and `labels`, where `labels` has one character per character of
    the text.

    A column `split` may say train or test. Otherwise the first 70% of the texts of each label are
    for training. A test text that is also a training text is left out. Raises CorpusError if the
    file is missing or not as above.
    """
    columns, rows = _read(path)
    names = set(columns) - {"split"}
    if names not in FORMS or len(set(columns)) < len(columns):
        needed = "text and label, or text_a, text_b and label, or text and labels, in lower case, separated by commas"
        raise CorpusError(
            f"{path} needs the columns {needed}; it has {', '.join(columns) or 'none'}"
        )
    kind = CHARACTER if "labels" in names else PAIR if "text_a" in names else TEXT
    found: dict[tuple[Example, str], None] = {}
    for number, row in enumerate(rows, start=1):
        if None in row:
            raise CorpusError(
                f"row {number} of {path} has too many columns: quote texts that contain commas"
            )
        if empty := [name for name in sorted(names) if not row[name]]:
            raise CorpusError(f"row {number} of {path}: the column {empty[0]} is empty")
        if row.get("split") not in (None, "", "train", "test"):
            raise CorpusError(f"row {number} of {path}: split must be train or test, or empty")
        texts = (row["text_a"], row["text_b"]) if kind == PAIR else (row["text"],)
        label = tuple(row["labels"]) if kind == CHARACTER else row["label"]
        if kind == CHARACTER and len(label) != len(texts[0]):
            raise CorpusError(
                f"row {number} of {path}: labels must have one character per character of the text"
            )
        found[Example(texts, label), row.get("split") or ""] = None
    return _split(path.name, kind, list(found))


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    try:
        content = read_bytes(path).decode("utf-8-sig")  # Excel writes a byte order mark
        reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
        return list(reader.fieldnames or ()), list(reader)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8: save it as a CSV file in UTF-8") from error
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(
            f"cannot read {path} ({reason}): give a CSV file, or the name of a task"
        ) from error


def _split(name: str, kind: str, examples: list[tuple[Example, str]]) -> Task:
    """Raises CorpusError if a label has fewer than five different training texts."""
    # The examples of a stratum are split by the same share: those with a label, or all if
    # characters have labels.
    stratum = (lambda example: "") if kind == CHARACTER else (lambda example: str(example.label))
    strata = [stratum(example) for example, _ in examples]
    total = Counter(label for label, (_, split) in zip(strata, examples, strict=True) if not split)
    seen = Counter[str]()
    pool: list[Example] = []
    test: list[Example] = []
    for label, (example, split) in zip(strata, examples, strict=True):
        seen[label] += not split
        is_training = split == "train" or (
            not split and seen[label] <= round(TRAINING_SHARE * total[label], 6)
        )
        (pool if is_training else test).append(example)
    pool = list(dict.fromkeys(pool))  # a row may occur with and without a split
    counts, known = Counter(map(stratum, pool)), {example.texts for example in pool}
    test = [example for example in test if example.texts not in known]
    if kind == CHARACTER and counts[""] < FEWEST:
        raise CorpusError(f"{name} has {counts['']} different training texts: {FEWEST} are needed")
    if rare := sorted(label for label in set(strata) if counts[label] < FEWEST):
        raise CorpusError(
            f"{name}: {len(rare)} of {len(set(strata))} labels have fewer than {FEWEST} different training texts, such"
            f" as {rare[0]!r} with {counts[rare[0]]}: merge such labels, and group numbers into classes"
        )
    task = Task(name, kind, pool, test)
    if only_in_test := sorted(set(Task(name, kind, test, []).labels) - set(task.labels)):
        raise CorpusError(
            f"{name}: no training text has the label {only_in_test[0]!r}, and a test text has"
        )
    if len(task.labels) < 2 or not test:
        raise CorpusError(
            f"{name}: two labels are needed, and a test text that is not a training text"
        )
    return task
