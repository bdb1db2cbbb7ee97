"""The tasks that `finetune.py --task` names: Folio's own, those of a table, or a function of the user's."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from configs.branch import is_reference
from configs.keys import ConfigError
from configs.own_code import own_task
from data.play.grammar import PLAY
from data.tasks import REPORT, TASKS, Task, shakespeare
from data.tasks.table import from_table
from data.tasks.task import CHARACTER
from trained.load import Trained


def tasks_named(name: str, trained: Trained) -> Iterator[tuple[str, Task]]:
    """The tasks that a name stands for, each with a name for its results. Raises InputError if
    there is none."""
    corpus = trained.run.corpus()["name"]
    homes = {task: home for home, tasks in TASKS.items() for task in tasks}
    if name == "all":
        yield from _tasks_on(corpus, trained)
    elif name == "speaker":
        yield name, shakespeare.speaker(REPORT, trained.data().loaded.name)
    elif name in homes:
        home = homes[name]
        if corpus != home:
            leak = "" if home == PLAY else ", which may contain its test texts"
            print(
                f"{name} is a task on {home}, and the run was trained on {corpus}{leak}"
            )
        yield name, TASKS[home][name](REPORT)
    elif is_reference(name):
        yield _with_digest(own_task(name, REPORT))
    elif name and (Path(name).suffix or os.path.exists(name)):
        yield _with_digest(from_table(Path(name)))
    else:
        names = ", ".join(sorted(homes))
        raise ConfigError(
            f"no task is called {name!r}: use {names}, all, a CSV, TSV or JSON"
            " lines file, or FILE.py:NAME"
        )


def source_of(word: str, name: str) -> str:
    """The word for which `tasks_named` gives the task `name` of `word` alone, in any folder."""
    is_file = Path(word).suffix or os.path.exists(word)
    return str(Path(word).resolve()) if is_file else name


def _tasks_on(corpus: str, trained: Trained) -> Iterator[tuple[str, Task]]:
    if corpus not in TASKS:
        known = ", ".join(sorted(TASKS))
        raise ConfigError(
            f"no task has labels for {corpus}: the corpora with tasks are {known}"
        )

    for name, build in TASKS[corpus].items():
        task = build(REPORT)
        if task.kind == CHARACTER and not trained.vocabulary.is_characters:
            print(
                f"{name} is left out: it has a label per character, and the run has other tokens"
            )
        else:
            yield name, task


def _with_digest(task: Task) -> tuple[str, Task]:
    """A user's task: others with the same name have results of their own."""
    digest = hashlib.sha256(repr((task.pool, task.test)).encode()).hexdigest()
    return f"{task.name} {digest[:8]}", task
