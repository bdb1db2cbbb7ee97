"""Tasks, their examples, and the registry of tasks."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

N_POOL = 1_024  # labelled examples; a draw of labels is a part of them
N_TEST = 2_000  # test examples, or as many as the text has
REPORT, SELECTION = "report", "selection"  # the uses of a task: their texts differ
# the kinds of tasks
CHARACTER = "character"
TEXT = "text"
PAIR = "pair"
CHOICE = "choice"
LABELS = "labels"
NUMBER = "number"
WORDS = "words"
OF_TOKENS = (CHARACTER, WORDS)  # the label belongs to a part of a text
Labels = Sequence[str | None]  # per character or word; None for one without a label


@dataclass(frozen=True)
class Example:
    """A text and its label.

    The label of a `character` task is a sequence with one label per character, that of a `words`
    task one per word, between white space; that of a `labels` task has any number of labels, and
    that of a `number` task is a number as text. Examples of a `pair` and of a `choice` have two
    texts; of those of a choice, the first is right.
    """

    texts: tuple[str, ...]
    label: str | Labels = ""


@dataclass(frozen=True)
class Task:
    """Labelled examples to learn from, and others to test."""

    name: str
    kind: str  # character, text, pair, choice, labels, number, or words
    pool: Sequence[Example]
    test: Sequence[Example]
    # expected accuracy of the Bayes-optimal classifier
    ceiling: Callable[[], float] | None = None
    balanced: bool = False  # every label counts the same, in losses and in the score

    @property
    def labels(self) -> list[str]:
        """The labels of the pool, sorted."""
        labels = set()
        for example in self.pool:
            labels.update(
                [example.label] if isinstance(example.label, str) else example.label
            )

        return sorted(filter(None, labels))

    def draw(self, n_labels: int, seed: int) -> list[Example]:
        """`n_labels` examples of the pool, without replacement; all of them if there are fewer.

        In a `text` or `pair` task each label has as equal a number as the pool allows.
        """
        order = (
            np.random.Generator(np.random.PCG64(seed))
            .permutation(len(self.pool))
            .tolist()
        )
        if self.kind in (
            TEXT,
            PAIR,
        ):  # the first of each label, then the second of each, ...
            seen = Counter[str | Labels]()
            rank = {}
            for i in order:
                label = self.pool[i].label
                rank[i] = seen[label]
                seen[label] += 1
            order.sort(key=rank.__getitem__)

        return [self.pool[i] for i in order[:n_labels]]


# corpus -> name, which `finetune.py --task` accepts -> function of the use
TASKS: dict[str, dict[str, Callable[[str], Task]]] = {}
