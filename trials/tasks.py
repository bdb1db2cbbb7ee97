"""Probes of tasks as a metric of a trial's runs. Needs scikit-learn."""

from collections.abc import Sequence
from functools import cache
from statistics import fmean

from configs.keys import ConfigError
from data.tasks import REPORT, TASKS, Task
from runs.run_folder import RunFolder
from trained.classification import probed
from trained.classifier import Classifier, scores_of
from trained.examples import accuracies, label_names, token_ids, units
from trained.load import Trained, load_trained
from trials.arms import Arm

LABELS = 64


def check_tasks(arms: Sequence[Arm]) -> None:
    """Raise ConfigError if the text of an arm has no tasks."""
    for arm in arms:
        corpus = arm.values["data.corpus"]
        if corpus not in TASKS:
            known = " or ".join(f"data.corpus={name}" for name in TASKS)
            raise ConfigError(f"data.corpus={corpus} has no tasks: use {known}")


def task_scores(run: RunFolder) -> float:
    """The mean accuracy of linear probes that learn the tasks of the run's text from 64 labelled
    examples each."""
    trained = load_trained(str(run.path))
    tasks = tasks_of(trained.values["data.corpus"])
    return fmean(accuracy_of_probe(trained, task) for task in tasks)


@cache
def tasks_of(corpus: str) -> list[Task]:
    return [build(REPORT) for build in TASKS[corpus].values()]


def accuracy_of_probe(trained: Trained, task: Task) -> float:
    """The share of right answers of a probe; the seed of the run draws the labelled examples."""
    examples = task.draw(LABELS, trained.values["seed"])
    labelled, test = (units(task, part) for part in (examples, task.test))
    ids, test_ids = (token_ids(part.texts, trained) for part in (labelled, test))
    probe = probed(
        Classifier(trained.model, len(label_names(task)), task.kind, trained.longest),
        ids,
        labelled.labels,
    )
    right, counts = accuracies(task, scores_of(probe, test_ids), test)
    return float(right.sum() / counts.sum())
