"""Compares fine-tuning of a pretrained model with fine-tuning from scratch, and with simpler classifiers."""

import copy
import sys
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from runs.statistics import paired_difference, standard_error, with_error
from trained.baselines import by_ngrams, logistic_regression, most_frequent, scores
from trained.classification import BATCH_SIZE, encoded, fine_tune, predictions, vectors
from trained.load import Trained, untrained
from trained.tasks import INNER_SHARE, Task, inner

LEARNING_RATES = (1e-3, 3e-3, 1e-2)
PRETRAINED, FROM_SCRATCH = "pretrained", "from scratch"
UNITS = {"hours": 3600, "minutes": 60, "seconds": 1}
Labels = list[str]  # of the test texts


def compare(trained: Trained, task: Task, freeze: bool, n_seeds: int) -> dict[str, Any]:
    """Train all models and print their scores; returns the results."""
    sizes = {"training": len(task.training), "test": len(task.test), "labels": len(task.labels)}
    print(f"{task.name}: {sizes['training']} texts for training, {sizes['test']} for testing, {sizes['labels']} labels")
    print_losses_of_text(trained, task)
    print(f"both models need about {expected_time(trained, task, freeze, n_seeds)}, by the time of a few texts")
    print("accuracy and F1 with their standard error over seeds", flush=True)
    guesses: dict[str, list[Labels]] = {}
    rates: dict[str, float] = {}
    models: dict[str, Callable[[int], Any]] = {  # functions of a seed
        PRETRAINED: lambda seed: copy.deepcopy(trained.model),
        FROM_SCRATCH: lambda seed: untrained({**trained.values, "seed": seed}, trained.vocabulary),
    }
    for name, model in models.items():
        if not freeze:
            rates[name] = best_rate(name, trained, model(0), task)
            print(f"  {name}: learning rate {rates[name]:g}", flush=True)
        guesses[name] = []
        for seed in range(n_seeds):
            if not freeze:
                labels = fine_tuned(trained, model(seed), task, rates[name], seed)
            elif seed == 0 or name == FROM_SCRATCH:  # a frozen pretrained encoder is the same for every seed
                labels = probed(trained, model(seed), task)
            guesses[name].append(labels)
            progress(f"{name}, seed {seed}", task, labels)
        show(name, task, guesses[name])
    for name, baseline in {"character n-grams": by_ngrams, "most frequent label": most_frequent}.items():
        guesses[name] = [baseline(task)]
        show(name, task, guesses[name])
    return {
        "task": task.name,
        "sizes": sizes,
        "frozen": freeze,
        "learning rates": rates,
        "scores": {name: [scores(task, labels) for labels in rows] for name, rows in guesses.items()},
        "gain of pretraining": gain(task, guesses[PRETRAINED], guesses[FROM_SCRATCH]),
    }


def print_losses_of_text(trained: Trained, task: Task) -> None:
    """Print how many texts are cut, and how many characters the run cannot read."""
    if task.n_cut:
        print(f"{task.n_cut:,} texts are longer than the run's windows: they are cut to {trained.longest} characters")
    texts = "".join(text for text, _ in task.training + task.test)
    vocabulary = trained.vocabulary
    known = set(vocabulary.characters) if vocabulary.is_characters else set(texts)
    if n_unknown := sum(map(texts.count, set(texts) - known)):
        of_all = f"{n_unknown:,} of {len(texts):,} characters are"
        read_as = "[MASK]" if vocabulary.unknown_token is None else "[UNK]"
        print(f"{of_all} not in the run's vocabulary: both models read them as {read_as}")


def expected_time(trained: Trained, task: Task, freeze: bool, n_seeds: int) -> str:
    """The time that both models need for their training, measured with at most 16 texts."""
    sample = task.training[:: -(-len(task.training) // BATCH_SIZE)]
    model, began = copy.deepcopy(trained.model), time.perf_counter()
    if freeze:
        vectors(trained.encoder, encoded([text for text, _ in sample], trained))
        n_texts = (1 + n_seeds) * (len(task.training) + len(task.test))
    else:
        fine_tuned(trained, model, Task(task.name, sample, []), LEARNING_RATES[0], seed=0)
        n_texts = round(2 * (len(LEARNING_RATES) * INNER_SHARE + n_seeds) * len(task.training))
    seconds = (time.perf_counter() - began) * n_texts / len(sample)
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size or size == 1)
    return f"{seconds / size:.0f} {unit}"


def best_rate(name: str, trained: Trained, model: Any, task: Task) -> float:
    """The learning rate with the highest accuracy on a fifth of the training texts, after training on the others."""
    part = inner(task)

    def accuracy(rate: float) -> float:
        labels = fine_tuned(trained, copy.deepcopy(model), part, rate, seed=0)
        return progress(f"{name}, learning rate {rate:g}, on a fifth of the training texts", part, labels)

    return max(LEARNING_RATES, key=accuracy)


def fine_tuned(trained: Trained, model: Any, task: Task, learning_rate: float, seed: int) -> Labels:
    """The labels of the test texts by a model that is trained on the training texts, in an order that the seed sets."""
    labels = task.labels
    classifier = fine_tune(
        model.encoder,
        encoded([text for text, _ in task.training], trained),
        [labels.index(label) for _, label in task.training],
        d_model=trained.values["model.d_model"],
        learning_rate=learning_rate,
        seed=seed,
    )
    return [labels[i] for i in predictions(classifier, encoded([text for text, _ in task.test], trained))]


def probed(trained: Trained, model: Any, task: Task) -> Labels:
    """The labels of the test texts by a logistic regression on the vectors of the encoder, which is not trained."""
    parts = [encoded([text for text, _ in part], trained) for part in (task.training, task.test)]
    return logistic_regression(task, *(vectors(model.encoder, part).numpy() for part in parts))


def progress(done: str, task: Task, labels: Labels) -> float:
    """Print on stderr what has been trained, and its accuracy; returns the accuracy."""
    accuracy = scores(task, labels)["accuracy"]
    print(f"    {done}: accuracy {accuracy:.3f}", file=sys.stderr, flush=True)
    return accuracy


def show(name: str, task: Task, guesses: Sequence[Labels]) -> None:
    """Print a model's mean scores over seeds."""
    rows = [scores(task, labels) for labels in guesses]
    values = {score: [row[score] for row in rows] for score in rows[0]}
    cells = [f"{score} {with_error(f'{fmean(each):.3f}', standard_error(each))}" for score, each in values.items()]
    print(f"  {name:20} {'   '.join(cells)}", flush=True)


def gain(task: Task, pretrained: Sequence[Labels], from_scratch: Sequence[Labels]) -> dict[str, Any]:
    """Print and return the accuracy of the pretrained model minus that of the model from scratch.

    Seeds and test texts both vary, so there are two 95% intervals: over seeds, and over test texts with the mean of
    the seeds for each text. Only a difference outside of both counts; one seed or one text gives no interval.
    """
    truth = np.array([label for _, label in task.test])
    correct = [np.array([np.array(labels) == truth for labels in each], float) for each in (pretrained, from_scratch)]
    margins: dict[str, float | None] = {}
    intervals = ""
    for name, axis in {"seeds": 1, "test texts": 0}.items():  # the axis of [n_seeds, n_test] that is averaged first
        difference = paired_difference(*(c.mean(axis) for c in correct))
        margin = margins[name] = 0.0 if difference.stderr == 0 else difference.margin
        intervals += f", no interval over {name} (only one)" if margin is None else f", ± {margin:.3f} over {name}"
    mean = float(correct[0].mean() - correct[1].mean())
    known = [margin for margin in margins.values() if margin is not None]
    if len(known) < len(margins):
        verdict = "no verdict"
    elif abs(mean) <= max(known):
        verdict = "no clear effect"
    else:
        verdict = "pretraining helps" if mean > 0 else "pretraining hurts"
    print(f"accuracy gained by pretraining: {mean:+.3f}{intervals} (95% intervals): {verdict}")
    return {"mean": mean, "margins": margins, "verdict": verdict}
