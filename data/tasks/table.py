"""A user's task: a table of texts and labels."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from data.tasks.task import CHARACTER, LABELS, NUMBER, PAIR, TEXT, WORDS, Example, Task
from data.text.files import CorpusError, UnusableFileError
from data.text.tables import rows_of
from runs.reading import opened

TRAINING_SHARE = 0.7  # of the texts of each label, in the order of the file
FEWEST = 5  # training texts per label
COLUMNS = {
    TEXT: {"text", "label"},
    PAIR: {"text_a", "text_b", "label"},
    CHARACTER: {"text", "labels"},
    NUMBER: {"text", "number"},
    WORDS: {"text", "tags"},
}
GLUE = (  # columns of its files, which are read as those above
    {"question": "text_a", "sentence": "text_b", "label": "label"},  # QNLI
    {"sentence1": "text_a", "sentence2": "text_b", "gold_label": "label"},  # MNLI
    {"sentence1": "text_a", "sentence2": "text_b", "label": "label"},  # RTE, WNLI
    {"question1": "text_a", "question2": "text_b", "is_duplicate": "label"},  # QQP
    {"#1 String": "text_a", "#2 String": "text_b", "Quality": "label"},  # MRPC
    {"sentence": "text", "label": "label"},  # SST-2
)
LABEL_COLUMNS = ("label", "labels", "number", "tags")
SEPARATOR = "|"  # of several labels
OF_A_LABEL = "label:"  # begins the names of columns that say whether a text has a label
YES_OR_NO = {"1": True, "true": True, "0": False, "false": False, "": False}
SIZE = 2**20  # bytes that are read at once
SPLITS = ("", "train", "test")


def from_table(path: Path) -> Task:
    """The task of a CSV, TSV or JSON lines file, plain, .gz or .zst, with the columns `text` and
    `label`; `text_a`, `text_b` and `label` for pairs of texts; `text` and `number`; `text` and
    `tags`, with one tag per word and a space between two, or a list of JSON; or `text` and
    `labels`, where `labels` has one character per character of the text, or any number of labels
    with | between them, or in a list of JSON, or a column `label:NAME` for each label, with 1 or 0.
    Columns of GLUE's files count as these. Other columns are not read.

    A column `split` may say train or test. Otherwise the first 70% of the texts of each label are
    for training. A test text that is also a training text is left out. Raises CorpusError if the
    file is missing or not as above.
    """
    rows = []
    for number, row in enumerate(read_table(path), start=1):
        try:
            rows.append(row | _labels_in_columns(row))
        except KeyError as error:
            raise CorpusError(
                f"row {number} of {path}: {error} in a column {OF_A_LABEL}NAME: write 1 or 0"
            ) from error
    columns = list(dict.fromkeys(name for row in rows for name in row if name))
    kinds = [kind for kind, names in COLUMNS.items() if names <= {*columns}]
    glue = [names for names in GLUE if names.keys() <= {*columns}]
    if glue and not kinds:
        print(f"{path.name}: reads the columns {', '.join(glue[0])}", flush=True)
        names = glue[0] | {"split": "split"}
        rows = [{new: row.get(old) for old, new in names.items()} for row in rows]
        kinds = [PAIR if "text_a" in glue[0].values() else TEXT]
    if len(kinds) != 1:
        raise CorpusError(
            f"{path} needs the columns text and label, or text_a, text_b and label, or text and"
            f" labels, or text and tags, or text and number, in lower case, or those of GLUE; it has"
            f" {', '.join(columns) or 'no rows'}"
        )
    kind = LABELS if kinds[0] == CHARACTER and has_several(rows) else kinds[0]

    examples = {}  # with their splits; equal rows count once
    for number, row in enumerate(rows, start=1):
        split = row.get("split") or ""
        if split not in SPLITS:
            raise CorpusError(
                f"row {number} of {path}: split must be train or test, or empty"
            )
        try:
            examples[_example(row, kind), split] = None
        except ValueError as error:
            raise CorpusError(f"row {number} of {path}: {error}") from error

    return _split(path.name, kind, list(examples))


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV, TSV or JSON lines file. Raises CorpusError."""
    try:
        with opened(path):
            pass  # refuse what is not a regular file
        return list(rows_of(path, SIZE))
    except UnusableFileError as error:
        raise CorpusError(f"{path} {error}") from error
    except OSError as error:
        raise CorpusError(
            f"cannot read {path} ({error.strerror or error}): give a CSV, TSV or JSON lines file,"
            " or the name of a task"
        ) from error


def _labels_in_columns(row: dict[str, Any]) -> dict[str, list[str]]:
    """The field `labels` of a row with a column for each label. Raises KeyError for a value that is
    not yes or no."""
    columns = [name for name in row if name and name.startswith(OF_A_LABEL)]
    if not columns:
        return {}
    names = []
    for column in columns:
        if YES_OR_NO[_text(row[column])]:
            names.append(column.removeprefix(OF_A_LABEL))
    return {"labels": names}


def has_several(rows: list[dict[str, Any]]) -> bool:
    """Whether the column `labels` has several labels per text: a list, or | in a row that has not
    one character per character."""
    for row in rows:
        labels = row.get("labels")
        if isinstance(labels, list):
            return True
        value = _text(labels)
        if SEPARATOR in value and len(value) != len(_text(row.get("text"))):
            return True
    return False


def _text(value: Any, between: str = SEPARATOR) -> str:
    """A field as text: numbers and truth values of JSON as they are written there; a list with
    `between` two of its values."""
    if value is None:
        return ""
    if isinstance(value, list):
        return between.join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _example(row: dict[str, Any], kind: str) -> Example:
    """The example of a row. Raises ValueError if it is not whole.

    Labels are printed and published, so they have no control characters, such as line ends.
    """
    fields = {}
    for name in sorted(COLUMNS[CHARACTER if kind == LABELS else kind]):
        fields[name] = _text(row.get(name), " " if kind == WORDS else SEPARATOR)
        if not fields[name] and (kind, name) != (LABELS, "labels"):
            raise ValueError(f"the column {name} is empty")

    label = next(fields[name] for name in LABEL_COLUMNS if name in fields)
    if not label.isprintable():
        raise ValueError(
            f"the label {label[:40]!r} has a character that cannot be printed"
        )
    if kind == PAIR:
        return Example((fields["text_a"], fields["text_b"]), label)

    text = fields["text"]
    if kind == LABELS:
        names = {name.strip() for name in label.split(SEPARATOR)}
        return Example((text,), tuple(sorted(names - {""})))
    if kind == NUMBER and not math.isfinite(float(label)):
        raise ValueError(f"the number {label} is not finite")
    if kind == WORDS:
        tags = label.split()
        n_words = len(text.split())
        if len(tags) != n_words or not tags:
            raise ValueError(f"the text has {n_words} words, and {len(tags)} tags")
        return Example((text,), tuple(tags))
    if kind != CHARACTER:
        return Example((text,), label)
    if len(label) != len(text):
        raise ValueError("labels must have one character per character of the text")

    return Example((text,), tuple(label))


def _split(name: str, kind: str, examples: list[tuple[Example, str]]) -> Task:
    """Raises CorpusError if a label has fewer than five different training texts."""

    def stratum(example: Example) -> str:
        """The examples of a stratum are split by the same share."""
        return str(example.label) if kind in (TEXT, PAIR) else ""

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
    if rare and kind not in (TEXT, PAIR):
        raise CorpusError(
            f"{name} has {len(pool)} different training texts: {FEWEST} are needed"
        )
    if rare:
        raise CorpusError(
            f"{name}: {len(rare)} of {len(strata)} labels have fewer than {FEWEST} different"
            f" training texts, such as {rare[0]!r} with {counts[rare[0]]}: merge such labels, or"
            " call the column number to predict numbers"
        )

    task = Task(name, kind, pool, test)
    only_in_test = set(Task(name, kind, test, []).labels) - set(task.labels)
    if only_in_test and kind != NUMBER:
        raise CorpusError(
            f"{name}: a test text has the label {min(only_in_test)!r}, and no training text has it"
        )

    if len(task.labels) < 2 or not test:
        raise CorpusError(
            f"{name}: two labels are needed, and a test text that is not a training text"
        )

    return task
