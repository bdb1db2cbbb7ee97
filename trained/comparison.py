"""Compares a pretrained model with the same model from scratch, and with simpler methods, on tasks
with few labels."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from torch import Tensor
from torch.nn import functional as F

from configs.keys import ConfigError
from data.tasks.task import CHARACTER, CHOICE, Example, Task
from runs.statistics import margin_of_sum, with_error
from trained.baselines import by_context, by_frequency, by_ngrams
from trained.classification import FOLDS, UNSEEN, fine_tuned, probed
from trained.classifier import Classifier, features_of, scores_of
from trained.examples import (
    NO_LABEL,
    Units,
    accuracies,
    label_names,
    n_cut,
    n_unknown,
    token_ids,
    units,
)
from trained.load import Trained, untrained
from trained.per_label import per_label
from trained.task_results import (
    CONTEXT,
    FREQUENT,
    FROM_SCRATCH,
    NGRAMS,
    PRETRAINED,
    PROBE,
    ZERO_SHOT,
    gap_closed,
)
from trained.zero_shot import pseudo_log_likelihoods

Effort = dict[str, Any]  # the learning rates of fine-tuning, and its least number of steps
GENTLE: Effort = {"learning_rate": 3e-4, "table_learning_rate": 0.0, "n_steps": 30}
STRONG: Effort = {"learning_rate": 2e-3, "table_learning_rate": 0.0, "n_steps": 60}
# the table is zero at first
UNTRAINED: Effort = {"learning_rate": 2e-3, "table_learning_rate": 1e-2, "n_steps": 60}


class Answers(NamedTuple):
    """How many answers of each method are right."""

    # method -> `[n_draws, n_test]`: per test example, which may have many labels
    right: dict[str, np.ndarray]
    counts: np.ndarray  # [n_test], all answers
    confusion: np.ndarray  # [n_labels, n_labels], of the fine-tuned model, all draws together
    learned: Classifier  # the fine-tuned model of the first draw


def verdict(gain: dict[str, Any], over: str) -> str:
    """A gain counts if its interval does not contain zero. Only the gain `over` the same model from
    scratch is that of pretraining."""
    if gain["margin"] is None:
        return "no verdict"
    if abs(gain["mean"]) <= gain["margin"]:
        return "no clear effect"
    better, worse = (
        ("pretraining helps", "pretraining hurts") if over == FROM_SCRATCH else ("better", "worse")
    )
    return better if gain["mean"] > 0 else worse


def interval(right: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """The mean of `right` `[n_draws, n_test]` per `counts` `[n_test]`, and its 95% interval over
    draws and test texts.

    Both vary: the variances of the mean over draws (labels, seeds) and over test texts are added,
    which is slightly too wide, because the variance of their interaction is in both. The margin is
    None for one draw or one test text.
    """
    n_draws, n_test = right.shape
    mean = right.sum() / counts.sum() / n_draws
    if min(n_draws, n_test) == 1:
        return {"mean": mean, "margin": None}
    of_draws = (right.sum(1) / counts.sum()).var(ddof=1) / n_draws
    of_texts = (right.mean(0) - mean * counts).var(ddof=1) * n_test / counts.sum() ** 2
    return {"mean": mean, "margin": margin_of_sum([of_draws, of_texts], [n_draws - 1, n_test - 1])}


def compare(
    trained: Trained, task: Task, n_labels: int, n_draws: int
) -> tuple[dict[str, Any], Classifier]:
    """Learn the task with every method, from `n_labels` examples in `n_draws` draws; print and
    return the results, and the fine-tuned model of the first draw.

    Raises ConfigError for labels of characters if the run's tokens are not characters.
    """
    if task.kind == CHARACTER and not trained.vocabulary.is_characters:
        tokens = trained.vocabulary.tokens
        raise ConfigError(
            f"{task.name} has a label per character, and the run's tokens are {tokens}"
        )
    names = label_names(task)
    sizes = {"labelled": min(n_labels, len(task.pool)), "test": len(task.test), "draws": n_draws}
    print(
        f"{task.name}: {sizes['labelled']} labelled of {len(task.pool)}, {sizes['test']} for testing,",
        end=" ",
    )
    print(f"{len(names)} labels, {n_draws} draws of labels", flush=True)
    print_unknown(trained, task)
    answers = answers_of(trained, task, n_labels, range(n_draws))
    ceiling = ceiling_of(task, trained)
    of_each_label = {} if task.kind == CHOICE else per_label(answers.confusion, names)
    return sizes | results(answers.right, answers.counts, ceiling) | of_each_label, answers.learned


def ceiling_of(task: Task, trained: Trained) -> float | None:
    """The best possible score; None if it is unknown, or if the run reads only the beginning of a
    text."""
    is_cut = n_cut([text for example in task.test for text in example.texts], trained)
    return task.ceiling() if task.ceiling and not is_cut else None


def answers_of(trained: Trained, task: Task, n_labels: int, draws: range) -> Answers:
    """Learn the task with every method, once per draw, and answer its test."""
    test, n_names = units(task, task.test, trained.longest_text), len(label_names(task))
    test_ids = token_ids(test.texts, trained)
    right: dict[str, list[Tensor]] = {}
    tuned: list[Classifier] = []
    if task.kind == CHOICE:  # needs no labels
        print(
            f"    {ZERO_SHOT}: each character of {len(test.texts):,} texts",
            file=sys.stderr,
            flush=True,
        )
        likelihoods = pseudo_log_likelihoods(trained, test_ids)
        right[ZERO_SHOT] = [accuracies(task, likelihoods.expand(2, -1).T, test)[0]] * len(draws)
    confusion = np.zeros((n_names, n_names), dtype=int)
    # of all probes
    frozen = cache(partial(features_of, Classifier(trained.model, n_names, task.kind), test_ids))
    began = time.monotonic()
    for i, draw in enumerate(draws):
        if i:
            left = (time.monotonic() - began) / i * (len(draws) - i)
            print(f"    about {left:.0f} s left for {task.name}", file=sys.stderr, flush=True)
        for name, learn in methods_of(trained, task, task.draw(n_labels, draw), test, draw).items():
            started = time.monotonic()
            learned = learn()
            is_frozen = isinstance(learned, Classifier) and learned.model is trained.model
            # of all characters they are too large
            known = frozen() if is_frozen and task.kind != CHARACTER else None
            found = (
                scores_of(learned, test_ids, known) if isinstance(learned, Classifier) else learned
            )
            correct, counts = accuracies(task, found, test)
            if name == PRETRAINED and isinstance(learned, Classifier):
                confusion += confusion_matrix(
                    test.all_labels.numpy(), found.argmax(1).numpy(), labels=range(n_names)
                )
                tuned = tuned or [learned]
            right.setdefault(name, []).append(correct)
            share, seconds = float(correct.sum() / counts.sum()), time.monotonic() - started
            print(
                f"    draw {draw}, {name}: {share:.3f} ({seconds:.1f} s)",
                file=sys.stderr,
                flush=True,
            )
    rows = {name: torch.stack(each).numpy() for name, each in right.items()}
    return Answers(rows, counts.numpy(), confusion, tuned[0])


def results(
    right: dict[str, np.ndarray], counts: np.ndarray, ceiling: float | None
) -> dict[str, Any]:
    """Print and return the score of each method, and the gain of the fine-tuned model over the
    others."""
    scores = {name: interval(rows, counts) for name, rows in right.items()}
    for name, score in scores.items():
        mean = with_error(f"{score['mean']:.3f}", score["margin"])
        print(f"  {name:24} {mean}")
    found: dict[str, Any] = {
        "scores": scores,
        "first draw": float(right[PRETRAINED][0].sum() / counts.sum()),
    }
    if ceiling is not None:
        print(f"  {'ceiling':24} {ceiling:.3f}")
        found["ceiling"] = ceiling
    if (closed := gap_closed(found)) is not None:
        share = f"{closed:.0%} of the gap between the best baseline and the ceiling is closed"
        print(f"  {share if closed > 0 else 'the best baseline is better'}")
    gains = {}
    for name in (FROM_SCRATCH, NGRAMS, CONTEXT):
        if name in right:
            gain = interval(right[PRETRAINED] - right[name], counts)
            gains[name] = gain | {"verdict": verdict(gain, name)}
            mean = with_error(f"{gain['mean']:+.3f}", gain["margin"])
            print(f"  gain over {name + ':':19} {mean}, {verdict(gain, name)}")
    return found | {"gains": gains}


def methods_of(
    trained: Trained, task: Task, examples: Sequence[Example], test: Units, draw: int
) -> dict[str, Callable[[], Classifier | Tensor]]:
    """The methods for one draw of labels: name -> a function that learns from them, and returns a
    classifier or the scores of the test."""
    labelled, n_labels = units(task, examples, trained.longest_text), len(label_names(task))
    ids, labels = token_ids(labelled.texts, trained), labelled.labels

    @cache
    def probe() -> Classifier:
        return probed(Classifier(trained.model, n_labels, task.kind), ids, labels)

    def from_scratch() -> Classifier:
        initial = untrained({**trained.values, "seed": draw}, trained.vocabulary)
        start = probed(Classifier(initial, n_labels, task.kind), ids, labels)
        return fine_tuned(start, ids, labels, **UNTRAINED, seed=draw)

    methods: dict[str, Callable[[], Classifier | Tensor]] = {
        PRETRAINED: lambda: fine_tuned(
            probe(), ids, labels, **effort_for(probe(), ids, labels, draw), seed=draw
        ),
        PROBE: probe,
        FROM_SCRATCH: from_scratch,
    }
    if task.kind == CHARACTER:
        methods[CONTEXT] = lambda: by_context(labelled, test, n_labels)
    else:
        methods[NGRAMS] = lambda: by_ngrams(labelled, test, n_labels)
    if task.kind != CHOICE:
        methods[FREQUENT] = lambda: by_frequency(
            units(task, task.pool, trained.longest_text), test, n_labels
        )
    return methods


def effort_for(
    probe: Classifier, ids: Sequence[Tensor], labels: Sequence[Tensor], seed: int
) -> Effort:
    """The effort for a pretrained model: gentle; for labels of characters, the one with the lower
    loss on a quarter of the texts."""
    if probe.kind != CHARACTER:
        return GENTLE
    n = len(labels) // FOLDS
    inner = Classifier(probe.model, probe.output.out_features, probe.kind)
    inner.chosen = probe.chosen
    inner = probed(inner, ids[n:], labels[n:])

    def loss(effort: Effort) -> float:
        scores = scores_of(fine_tuned(inner, ids[n:], labels[n:], **effort, seed=seed), ids[:n])
        log_probabilities = scores.log_softmax(-1).clamp(min=math.log(UNSEEN))
        return F.nll_loss(
            log_probabilities, torch.cat(list(labels[:n])), ignore_index=NO_LABEL
        ).item()

    return min((GENTLE, STRONG), key=loss)


def print_unknown(trained: Trained, task: Task) -> None:
    """Print how many texts are cut, and how many characters the run cannot read."""
    texts = [text for example in [*task.pool, *task.test] for text in example.texts]
    if n := n_cut(texts, trained):
        longest = f"{trained.longest} {trained.vocabulary.tokens}"
        print(f"{n:,} texts are longer than the run's windows: they are cut to {longest}")
    if n := n_unknown(texts, trained.vocabulary):
        read_as = "[MASK]" if trained.vocabulary.unknown_token is None else "[UNK]"
        of_all = f"{n:,} of {sum(map(len, texts)):,} characters"
        print(f"{of_all} are not in the run's vocabulary: the models read them as {read_as}")
        print("    (to teach them: python experiment.py --init-from RUN data.corpus=PATH)")
