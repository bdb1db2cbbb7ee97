"""All masking strategies and several masking rates at the same number of training steps, by losses
and by tasks.

python -m benchmarks.strategies [--seeds 3] [--steps 600]

All runs train the preset `base` on the built-in play, whose tasks have exact labels. A strategy may
only be better at what it trains, so three losses are shown: by the protocol (single characters
masked at random), with whole words masked, and with spans of five characters masked, all on the
same windows. The tasks are learned by a linear probe from 64 labelled examples; shown is how far
its accuracy is below the best possible one, as the mean over tasks: over all, and without
`grammatical`, where one wrong character decides. Differences are from `random`, by seed: runs with
the same seed begin with the same weights, see the same windows and learn from the same labelled
examples.
"""

from argparse import Namespace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.command import recipe, run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import Variants, last_losses, run_trials
from data.masking.strategies import STRATEGIES
from data.play.grammar import PLAY
from data.tasks import REPORT, TASKS, Task
from runs.run_folder import RunFolder
from trained.classification import probed
from trained.classifier import Classifier, scores_of
from trained.examples import accuracies, label_names, token_ids, units
from trained.load import Trained, load_trained
from trained.measures import hard_masks

BASE = "random"
LABELS = 64
RECIPE = recipe("strategies")
OF_STRATEGIES = {name: {"masking.strategy": name} for name in STRATEGIES}
VARIANTS: Variants = OF_STRATEGIES | RECIPE["variants"]
LOSSES = {
    "loss.valid": "protocol",
    "loss.words": "whole words",
    "loss.spans": "spans of 5",
    "tasks": "probes below the ceiling",
    "tasks.others": "the same without grammatical",
    "tasks.grammatical": "grammatical",
}


def main(options: Namespace, path: Path) -> None:
    common = {
        "preset": "base",
        "data.corpus": PLAY,
        "training.max_seconds": None,
        "training.max_steps": options.steps,
    }
    variants = {name: common | keys for name, keys in VARIANTS.items()}
    rows = run_trials(path, variants, options.seeds, measure, 60 + 0.08 * options.steps)
    results = by_variant(rows)
    means = {}
    for name, runs in results.items():
        means[name] = fmean(run["tasks"] for run in runs.values())
    results = {name: results[name] for name in sorted(means, key=means.__getitem__)}
    bases = dict.fromkeys(VARIANTS, BASE)
    table = compared(results, bases, LOSSES, {"claim": RECIPE["claims"]})
    save_results(path, table, steps=options.steps, trials=rows)


def measure(run: RunFolder) -> dict[str, Any]:
    """The losses of a run by the protocol and with hard masks, and how far probes are below the
    ceilings of tasks."""
    trained = load_trained(str(run.path))
    hard = hard_masks(trained.model, trained.data().validation_set, trained.vocabulary)
    below = {}

    for name, (task, ceiling) in tasks_with_ceilings().items():
        below[name] = ceiling - accuracy_of_probe(trained, task)

    results = {f"tasks.{name}": each for name, each in below.items()}
    results["loss.words"] = hard["whole words"]["loss"]
    results["loss.spans"] = hard["spans of 5"]["loss"]
    results["tasks"] = fmean(below.values())
    del below["grammatical"]
    results["tasks.others"] = fmean(below.values())
    return last_losses(run) | results


@cache
def tasks_with_ceilings() -> dict[str, Any]:
    built = {name: build(REPORT) for name, build in TASKS[PLAY].items()}
    return {
        name: (task, task.ceiling()) for name, task in built.items() if task.ceiling
    }


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


if __name__ == "__main__":
    run_benchmark(main, seeds=3, steps=600)
