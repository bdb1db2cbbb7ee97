"""Presets compared on tasks with few labels: what is pretraining worth?

python -m benchmarks.transfer [PRESET ...] [--seeds 3] [--seconds 600] [--labels 64] [--draws 2]

Each preset (default: base, quick, modernbert, and Hugging Face's ModernBERT as `peer`) is trained
for --seconds, once per seed, on the built-in play and on tiny Shakespeare. Each run learns the
tasks on its text as finetune.py does, from --draws draws of labels of its own. The table has the
accuracy of the fine-tuned models, of other methods with the first preset, and the best possible
one. The 95% intervals are over seeds, draws of labels and test texts.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from benchmarks.command import chosen, run_benchmark, save_results
from benchmarks.report import Results, by_variant
from benchmarks.time_to_loss import PEERS, peer_keys
from benchmarks.trials import Trial, last_losses, run_trials
from configs.command_line.scripts import number
from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks import TASKS
from data.tasks.task import REPORT
from runs.run_folder import RunFolder
from runs.statistics import margin_of_sum, standard_error, with_error
from trained.comparison import answers_of, ceiling_of
from trained.load import load_trained
from trained.task_results import (
    BASELINES,
    CONTEXT,
    FROM_SCRATCH,
    NGRAMS,
    PRETRAINED,
    PROBE,
    ZERO_SHOT,
    gap_closed,
)
from writing.judge import ratio

CORPORA = (PLAY, TINY_SHAKESPEARE)
PEER = "peer"
MODERNBERT = "Hugging Face ModernBERT"
PRESETS = ("base", "quick", "modernbert", PEER)
MANY = 1e6  # degrees of freedom of a variance over many test texts; `t_quantile` is wrong above 1e8
SECONDS_PER_DRAW = 40  # of a task, for `base` on two cores


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, let them learn the tasks, print the table, and write JSON."""
    names = chosen("preset", options.presets, PRESETS)
    how = {"labels": options.labels, "draws": options.draws}
    rows: list[Trial] = []
    table: list[dict[str, str]] = []

    for corpus in CORPORA:
        common = {"data.corpus": corpus, "training.max_seconds": options.seconds}
        variants = {name: preset(name) | common for name in names}
        seconds = (
            options.seconds + 60 + SECONDS_PER_DRAW * options.draws * len(TASKS[corpus])
        )
        new = run_trials(
            path, variants, options.seeds, partial(measure, **how), seconds, **how
        )
        rows += new
        table += table_of_tasks(by_variant(new))

    save_results(path, table, trials=rows)


def preset(name: str) -> dict[str, Any]:
    """A preset by its name, or the peer."""
    if name == PEER:
        return peer_keys(MODERNBERT, "quick") | PEERS["best"]["quick"][MODERNBERT]
    return {"preset": name}


def measure(run: RunFolder, labels: int, draws: int) -> dict[str, Any]:
    """The losses of a run, and what it reaches on each task of its text, with the spread over draws
    and test texts."""
    trained = load_trained(str(run.path))
    corpus = trained.run.corpus()["name"]
    first = trained.values["seed"] * draws  # no two runs of a preset have the same draw
    tasks = {}

    for name, build in TASKS[corpus].items():
        task = build(REPORT)
        answers = answers_of(trained, task, labels, range(first, first + draws))
        scores = {}
        gains = {}
        for method, right in answers.right.items():
            scores[method] = spread_of(right, answers.counts)
            if method in (FROM_SCRATCH, *BASELINES):
                gain = answers.right[PRETRAINED] - right
                gains[method] = spread_of(gain, answers.counts)
        tasks[name] = {
            "scores": scores,
            "gains": gains,
            "ceiling": ceiling_of(task),
        }

    return last_losses(run) | {"corpus": corpus, "tasks": tasks}


def spread_of(right: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """The mean of `right` `[n_draws, n_test]` per `counts` `[n_test]`, and its variance over test
    texts."""
    mean, error = ratio(torch.from_numpy(right.mean(0)), torch.from_numpy(counts))
    return {"mean": mean, "variance": error**2}


def interval_of(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The mean of runs with other seeds and draws of labels, with its 95% interval over these and
    test texts.

    The variances of both are added. That over test texts is of a single run, so the interval is
    slightly too wide.
    """
    means = [run["mean"] for run in runs]
    if len(runs) == 1:
        return {"mean": means[0], "margin": None}
    variances = [
        float(np.var(means, ddof=1)) / len(runs),
        fmean(run["variance"] for run in runs),
    ]
    return {
        "mean": fmean(means),
        "margin": margin_of_sum(variances, [len(runs) - 1, MANY]),
    }


def scores_of(
    runs: Results, variant: str, task: str, kind: str = "scores"
) -> dict[str, dict[str, Any]]:
    """The scores (or gains) of each method on a task, over the seeds of a variant."""
    of_seeds = [run["tasks"][task][kind] for run in runs[variant].values()]
    scores = {}
    for method in of_seeds[0]:
        scores[method] = interval_of([each[method] for each in of_seeds])
    return scores


def shown(score: Mapping[str, Any]) -> str:
    return with_error(f"{score['mean']:.3f}", score["margin"])


def table_of_tasks(results: Results) -> list[dict[str, str]]:
    """A row per task: the fine-tuned presets, other methods with the shape and labels of the first,
    and the ceiling."""
    table: list[dict[str, str]] = []
    first = next(iter(results))
    first_run = results[first][0]

    for task, of_first in first_run["tasks"].items():
        scores = scores_of(results, first, task)
        gains = scores_of(results, first, task, "gains")
        row = {"": task}
        for name in results:
            row[name] = shown(scores_of(results, name, task)[PRETRAINED])
        for method in (PROBE, ZERO_SHOT, FROM_SCRATCH, NGRAMS, CONTEXT):
            if method in scores:
                is_of_first = method in (PROBE, ZERO_SHOT)
                row[f"{first}, {method}" if is_of_first else method] = shown(
                    scores[method]
                )

        ceiling = of_first["ceiling"]
        closed = gap_closed({"scores": scores, "ceiling": ceiling})
        row["ceiling"] = "" if ceiling is None else f"{ceiling:.3f}"
        row["gap closed"] = "" if closed is None else f"{closed:.0%}"
        beaten = []
        for name, gain in gains.items():
            if gain["margin"] is not None and gain["mean"] > gain["margin"]:
                beaten.append(name)
        row[f"{first} is better than"] = (
            "all" if len(beaten) == len(gains) else ", ".join(beaten)
        )
        table.append(row)

    row = {"": f"`loss.valid` on {first_run['corpus']}"}
    for name, runs in results.items():
        losses = [run["loss.valid"] for run in runs.values()]
        row[name] = with_error(f"{fmean(losses):.3f}", standard_error(losses))

    return [*table, row]


if __name__ == "__main__":
    names = f"presets (default: {' '.join(PRESETS)})"
    examples = "labelled examples (default: 64)"
    run_benchmark(
        main,
        seeds=3,
        seconds=600.0,
        presets={"nargs": "*", "metavar": "PRESET", "default": [], "help": names},
        labels={
            "type": number(int, 8),
            "default": 64,
            "metavar": "N",
            "help": examples,
        },
        draws=2,
    )
