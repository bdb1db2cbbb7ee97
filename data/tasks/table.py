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
KINDS = {  # by the columns
    frozenset({"text", "label"}): TEXT,
    frozenset({"text_a", "text_b", "label"}): PAIR,
    frozenset({"text", "labels"}): CHARACTER,
}
SPLITS = ("", "train", "test")


def from_csv(path: Path) -> Task:
    """The task of a CSV file with the columns `text` and `label`; `text_a`, `text_b` and `label`
    for pairs of texts; or `text` and `labels`, where `labels` has one character per character of
    the text.

    A column `split` may say train or test. Otherwise the first 70% of the texts of each label are
    for training. A test text that is also a training text is left out. Raises CorpusError if the
    file is missing or not as above.
    """
    columns, rows = _read(path)
    kind = KINDS.get(frozenset(columns) - {"split"})
    if kind is None or len(set(columns)) < len(columns):
        raise CorpusError(
            f"{path} needs the columns text and label, or text_a, text_b and label, or text and"
            " labels, in lower case, separated by commas; it has "
            + (", ".join(columns) or "none")
        )

    examples = {}  # with their splits; equal rows count once
    for number, row in enumerate(rows, start=1):
        split = row.pop("split", "") or ""
        if split not in SPLITS:
            raise CorpusError(
                f"row {number} of {path}: split must be train or test, or empty"
            )
        try:
            examples[_example(row, kind), split] = None
        except ValueError as error:
            raise CorpusError(f"row {number} of {path}: {error}") from error

    return _split(path.name, kind, list(examples))


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    try:
        content = read_bytes(path).decode("utf-8-sig")  # Excel writes a byte order mark
        # data.text.tables allows fields of any length
        reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
        return list(reader.fieldnames or ()), list(reader)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path} is not UTF-8: save it as a CSV file in UTF-8"
        ) from error
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(
            f"cannot read {path} ({reason}): give a CSV file, or the name of a task"
        ) from error


def _example(row: dict[str, str], kind: str) -> Example:
    """The example of a row. Raises ValueError if it is not whole.

    Labels are printed and published, so they have no control characters, such as line ends.
    """
    if None in row:
        raise ValueError("it has too many columns: quote texts that contain commas")

    for name in sorted(row):
        if not row[name]:
            raise ValueError(f"the column {name} is empty")

    label = row.get("label") or row["labels"]
    if not label.isprintable():
        raise ValueError(
            f"the label {label[:40]!r} has a character that cannot be printed"
        )
    if kind == PAIR:
        return Example((row["text_a"], row["text_b"]), label)

    text = row["text"]
    if kind == TEXT:
        return Example((text,), label)
    if len(label) != len(text):
        raise ValueError("labels must have one character per character of the text")

    return Example((text,), tuple(label))


def _split(name: str, kind: str, examples: list[tuple[Example, str]]) -> Task:
    """Raises CorpusError if a label has fewer than five different training texts."""

    def stratum(example: Example) -> str:
        """The examples of a stratum are split by the same share."""
        return "" if kind == CHARACTER else str(example.label)

    n_unsplit = Counter(stratum(example) for example, split in examples if not split)
    seen = Counter[str]()
    pool = []
    test = []
    for example, split in examples:
        label = stratum(example)
        if not split:
            seen[label] += 1
            is_training = seen[label] <= round(TRAINING_SHARE * n_unsplit[label], 6)
            split = "train" if is_training else "test"
        (pool if split == "train" else test).append(example)

    pool = list(dict.fromkeys(pool))  # a row may occur with and without a split
    known = {example.texts for example in pool}
    test = [example for example in test if example.texts not in known]

    counts = Counter(map(stratum, pool))
    strata = {stratum(example) for example, _ in examples}
    rare = sorted(label for label in strata if counts[label] < FEWEST)
    if rare and kind == CHARACTER:
        raise CorpusError(
            f"{name} has {len(pool)} different training texts: {FEWEST} are needed"
        )
    if rare:
        raise CorpusError(
            f"{name}: {len(rare)} of {len(strata)} labels have fewer than {FEWEST} different"
            f" training texts, such as {rare[0]!r} with {counts[rare[0]]}: merge such labels, and"
            " group numbers into classes"
        )

    task = Task(name, kind, pool, test)
    only_in_test = set(Task(name, kind, test, []).labels) - set(task.labels)
    if only_in_test:
        raise CorpusError(
            f"{name}: a test text has the label {min(only_in_test)!r}, and no training text has it"
        )

    if len(task.labels) < 2 or not test:
        raise CorpusError(
            f"{name}: two labels are needed, and a test text that is not a training text"
        )

    return task
