"""Presets compared on tasks with few labels: what is pretraining worth?

python -m benchmarks.transfer [PRESET ...] [--seeds 3] [--seconds 600] [--labels 64] [--draws 2] [--search]

Each preset (default: base, quick, modernbert, and Hugging Face's ModernBERT as `peer`) is trained for --seconds, once
per seed, on the built-in play and on tiny Shakespeare. Each run learns the tasks on its text as finetune.py does, from
--draws draws of labels of its own. The table has the accuracy of the fine-tuned models, of other methods with the first
preset, and the best possible one. The 95% intervals are over seeds, draws of labels and test texts.

--search compares the candidates for the preset `base` in benchmarks/recipes/transfer.yaml instead, on the play, with
other seeds, and on the texts of the tasks that are kept for such choices.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import models  # noqa: F401, it registers Hugging Face's architectures
from benchmarks.command import recipe, run_benchmark, save_results
from benchmarks.report import Results, by_variant
from benchmarks.time_to_loss import PEERS, peer_keys
from benchmarks.trials import COMMON, Trial, last_losses, run_trials, trials_of
from configs.keys import ConfigError
from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from data.tasks import TASKS
from data.tasks.task import REPORT, SELECTION
from runs.run_folder import RunFolder
from runs.statistics import CONFIDENCE, standard_error, t_quantile, with_error
from trained.comparison import answers_of
from trained.load import load_trained
from trained.task_results import (
    BASELINES,
    BEST_BASELINE,
    CONTEXT,
    FROM_SCRATCH,
    NGRAMS,
    PRETRAINED,
    PROBE,
    ZERO_SHOT,
    gap_closed,
    with_best_baseline,
)

CORPORA = (PLAY, TINY_SHAKESPEARE)
BASE, PEER, MODERNBERT = "base", "peer", "Hugging Face ModernBERT"
PRESETS = (BASE, "quick", "modernbert", PEER)
SEARCH_SEEDS = 100  # the first seed of a search
LEAST_GAP = 0.02  # between the best baseline and the ceiling, for a share of it to count


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, let them learn the tasks, print the table, and write JSON."""
    seconds = options.seconds + 60 + 25 * options.draws * len(TASKS[PLAY])
    learn = partial(measure, options=options)
    if unknown := set(options.presets).difference(PRESETS):
        raise ConfigError(f"unknown preset {min(unknown)}: choose from {', '.join(PRESETS)}")
    common = COMMON | {"training.max_seconds": options.seconds}
    if options.search:
        candidates = recipe("transfer")["candidates"]
        trials = trials_of(candidates, common | {"data.corpus": PLAY}, options.seeds, BASE)
        trials = [trial | {"seed": trial["seed"] + SEARCH_SEEDS} for trial in trials]
        found = run_trials(path, trials, learn, seconds)
        save_results(path, table_of_candidates(by_variant(found)), trials=found)
        return
    rows: list[Trial] = []
    table: list[dict[str, str]] = []
    for corpus in CORPORA:
        trials = [
            trial
            for name in options.presets or PRESETS
            for trial in trials_of(
                {name: keys_of(name)}, common | {"data.corpus": corpus}, options.seeds, home_of(name)
            )
        ]
        of_corpus = run_trials(path, trials, learn, seconds)
        table += table_of_tasks(by_variant(of_corpus))
        rows += of_corpus
    save_results(path, table, trials=rows)


def home_of(name: str) -> str:
    """The preset that the keys of a variant belong to."""
    return "quick" if name == PEER else name


def keys_of(name: str) -> dict[str, Any]:
    """The keys of a variant, in addition to its preset."""
    return peer_keys(MODERNBERT, "quick") | PEERS["best"]["quick"][MODERNBERT] if name == PEER else {}


def measure(run: RunFolder, options: Namespace) -> dict[str, Any]:
    """The losses of a run, and what it reaches on each task of its text, with the spread over draws and test texts."""
    trained = load_trained(str(run.path))
    seed, use = trained.values["seed"], SELECTION if options.search else REPORT
    draws = range(seed * options.draws, (seed + 1) * options.draws)  # no two runs of a preset have the same draw
    tasks = {}
    for name, build in TASKS[trained.run.corpus()["name"]].items():
        task = build(use)
        answers = answers_of(trained, task, options.labels, draws)
        scores = {method: spread_of(right, answers.counts) for method, right in answers.right.items()}
        own = answers.right[PRETRAINED]
        gains = {
            method: spread_of(own - right, answers.counts)
            for method, right in answers.right.items()
            if method in (FROM_SCRATCH, *BASELINES)
        }
        tasks[name] = {"scores": scores, "gains": gains, "ceiling": task.ceiling() if task.ceiling else None}
    return last_losses(run) | {"tasks": tasks}


def spread_of(right: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """The mean of `right` `[n_draws, n_test]` per `counts` `[n_test]`, and its variance over test texts."""
    of_texts = right.mean(0)
    mean = of_texts.sum() / counts.sum()
    variance = (of_texts - mean * counts).var(ddof=1) * len(counts) / counts.sum() ** 2
    return {"mean": float(mean), "variance": float(variance)}


def interval_of(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The mean of runs with other seeds and draws of labels, with its 95% interval over these and test texts.

    The variances of both are added. That over test texts is of a single run, so the interval is slightly too wide.
    """
    means = [run["mean"] for run in runs]
    if len(runs) == 1:
        return {"mean": means[0], "margin": None}
    variance = np.var(means, ddof=1) / len(runs) + fmean(run["variance"] for run in runs)
    return {"mean": fmean(means), "margin": t_quantile(CONFIDENCE, len(runs) - 1) * float(variance) ** 0.5}


def scores_of(runs: Results, variant: str, task: str, kind: str = "scores") -> dict[str, dict[str, Any]]:
    """The scores (or gains) of each method on a task, over the seeds of a variant."""
    found = [run["tasks"][task][kind] for run in runs[variant].values()]
    return {method: interval_of([each[method] for each in found]) for method in found[0]}


def shown(score: Mapping[str, Any]) -> str:
    return with_error(f"{score['mean']:.3f}", score["margin"])


def table_of_tasks(results: Results) -> list[dict[str, str]]:
    """A row per task: the fine-tuned presets, other methods with the shape and labels of the first, and the ceiling."""
    table, first = [], next(iter(results))
    for task, of_first in results[first][0]["tasks"].items():
        scores, gains = scores_of(results, first, task), scores_of(results, first, task, "gains")
        row = {"": task} | {name: shown(scores_of(results, name, task)[PRETRAINED]) for name in results}
        row |= {f"{first}, {method}": shown(scores[method]) for method in (PROBE, ZERO_SHOT) if method in scores}
        row |= {method: shown(scores[method]) for method in (FROM_SCRATCH, NGRAMS, CONTEXT) if method in scores}
        closed = gap_closed({"scores": scores, "ceiling": of_first["ceiling"]})
        beaten = [name for name, gain in gains.items() if gain["margin"] is not None and gain["mean"] > gain["margin"]]
        row["ceiling"] = "" if of_first["ceiling"] is None else f"{of_first['ceiling']:.3f}"
        row["gap closed"] = "" if closed is None else f"{closed:.0%}"
        row[f"{first} is better than"] = "all" if len(beaten) == len(gains) else ", ".join(beaten)
        table.append(row)
    losses = {name: [run["loss.valid"] for run in runs.values()] for name, runs in results.items()}
    table.append(
        {"": "`loss.valid`"} | {k: with_error(f"{fmean(v):.3f}", standard_error(v)) for k, v in losses.items()}
    )
    return table


def table_of_candidates(results: Results) -> list[dict[str, str]]:
    """A row per candidate: its mean share of the gap closed, its loss, and its accuracy on each task."""
    table = []
    for name, runs in results.items():
        closed, accuracy = [], {}
        for task in TASKS[PLAY]:
            scores = scores_of(results, name, task)
            ceiling = fmean(run["tasks"][task]["ceiling"] for run in runs.values())
            best = with_best_baseline(scores)[BEST_BASELINE]["mean"]
            if best < ceiling - LEAST_GAP:
                closed.append((scores[PRETRAINED]["mean"] - best) / (ceiling - best))
            accuracy[task] = f"{scores[PRETRAINED]['mean']:.3f}"
        loss = fmean(run["loss.valid"] for run in runs.values())
        chars = fmean(run["chars"] for run in runs.values())
        row = {"": name, "gap closed": f"{fmean(closed):.0%}", "loss.valid": f"{loss:.3f}"}
        table.append(row | accuracy | {"characters": f"{chars / 1e6:.1f} M"})
    return table


if __name__ == "__main__":
    names = f"presets (default: {' '.join(PRESETS)})"
    options: dict[str, dict[str, Any]] = {
        "presets": {"nargs": "*", "metavar": "PRESET", "default": [], "help": names},
        "labels": {"type": int, "default": 64, "metavar": "N", "help": "labelled examples (default: 64)"},
        "draws": {"type": int, "default": 2, "metavar": "N", "help": "draws of labels per run (default: 2)"},
        "search": {"action": "store_true", "help": "compare the candidates for the preset base"},
    }
    run_benchmark(main, options, seeds=3, seconds=600.0)
