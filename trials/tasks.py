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
    corpus = trained.values["data.corpus"]
    scores = []
    for task in tasks_of(corpus):
        scores.append(accuracy_of_probe(trained, task))
    return fmean(scores)


@cache
def tasks_of(corpus: str) -> list[Task]:
    builders = TASKS[corpus].values()
    return [build(REPORT) for build in builders]


def accuracy_of_probe(trained: Trained, task: Task) -> float:
    """The share of right answers of a probe; the seed of the run draws the labelled examples."""
    examples = task.draw(LABELS, trained.values["seed"])
    labelled = units(task, examples)
    test = units(task, task.test)
    n_labels = len(label_names(task))
    classifier = Classifier(trained.model, n_labels, task.kind, trained.longest)

    ids = token_ids(labelled.texts, trained)
    probe = probed(classifier, ids, labelled.labels)
    test_ids = token_ids(test.texts, trained)
    scores = scores_of(probe, test_ids)
    right, counts = accuracies(task, scores, test)
    return float(right.sum() / counts.sum())
