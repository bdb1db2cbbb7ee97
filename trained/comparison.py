"""Compares a pretrained model with the same model from scratch, and with simpler methods, on tasks
with few labels."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import confusion_matrix
from torch import Tensor
from torch.nn import functional as F

from configs.keys import ConfigError
from data.tasks.task import CHARACTER, CHOICE, Example, Task
from runs.statistics import margin_of_sum, with_error
from runs.terminal import in_one_line
from trained.baselines import by_context, by_frequency, by_ngrams
from trained.classification import UNSEEN, fine_tuned, probed
from trained.classifier import Classifier, features_of, scores_of
from trained.examples import (
    FOLDS,
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

Effort = dict[
    str, Any
]  # the learning rates of fine-tuning, and its least number of steps
GENTLE: Effort = {"learning_rate": 3e-4, "table_learning_rate": 0.0, "n_steps": 30}
STRONG: Effort = {"learning_rate": 2e-3, "table_learning_rate": 0.0, "n_steps": 60}
# the table is zero at first
UNTRAINED: Effort = {"learning_rate": 2e-3, "table_learning_rate": 1e-2, "n_steps": 60}


class Answers(NamedTuple):
    """How many answers of each method are right."""

    # method -> `[n_draws, n_test]`: per test example, which may have many labels
    right: dict[str, np.ndarray]
    counts: np.ndarray  # [n_test], all answers
    confusion: (
        np.ndarray
    )  # [n_labels, n_labels], of the fine-tuned model, all draws together
    learned: Classifier  # the fine-tuned model of the first draw


def verdict(gain: dict[str, Any], over: str) -> str:
    """A gain counts if its interval does not contain zero. Only the gain `over` the same model from
    scratch is that of pretraining."""
    if gain["margin"] is None:
        return "no verdict"
    if abs(gain["mean"]) <= gain["margin"]:
        return "no clear effect"
    is_better = gain["mean"] > 0
    if over == FROM_SCRATCH:
        return "pretraining helps" if is_better else "pretraining hurts"
    return "better" if is_better else "worse"


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

    return {
        "mean": mean,
        "margin": margin_of_sum([of_draws, of_texts], [n_draws - 1, n_test - 1]),
    }


def compare(
    trained: Trained, task: Task, n_labels: int, n_draws: int
) -> tuple[dict[str, Any], Classifier]:
    """Learn the task with every method, from `n_labels` examples in `n_draws` draws; print and
    return the results, and the fine-tuned model of the first draw.

    Raises ConfigError for labels of characters if the run's tokens are not characters.
    """
    title = in_one_line(task.name)
    if task.kind == CHARACTER and not trained.vocabulary.is_characters:
        tokens = trained.vocabulary.tokens
        raise ConfigError(
            f"{title} has a label per character, and the run's tokens are {tokens}"
        )

    names = label_names(task)
    n_pool = len(task.pool)
    n_labelled = min(n_labels, n_pool)
    sizes = {"labelled": n_labelled, "test": len(task.test), "draws": n_draws}
    print(
        f"{title}: {n_labelled} labelled of {n_pool}, {len(task.test)} for testing,"
        f" {len(names)} labels, {n_draws} draw{'s' * (n_draws > 1)} of labels",
        flush=True,
    )
    print_unknown(trained, task)
    answers = answers_of(trained, task, n_labels, range(n_draws))
    scores = results(answers.right, answers.counts, ceiling_of(task, trained))
    of_labels = {} if task.kind == CHOICE else per_label(answers.confusion, names)

    return sizes | scores | of_labels, answers.learned


def ceiling_of(task: Task, trained: Trained) -> float | None:
    """The best possible score; None if it is unknown, or if the run reads only the beginning of a
    text."""
    if task.ceiling is None or n_cut(texts_of(task.test), trained):
        return None
    return task.ceiling()


def texts_of(examples: Sequence[Example]) -> list[str]:
    texts: list[str] = []
    for example in examples:
        texts += example.texts
    return texts


def answers_of(trained: Trained, task: Task, n_labels: int, draws: range) -> Answers:
    """Learn the task with every method, once per draw, and answer its test."""
    test = units(task, task.test, trained.longest_text)
    test_ids = token_ids(test.texts, trained)
    n_names = len(label_names(task))
    right: dict[str, list[Tensor]] = {}
    tuned: list[Classifier] = []
    if task.kind == CHOICE:  # needs no labels
        report(f"{ZERO_SHOT}: each character of {len(test.texts):,} texts")
        likelihoods = pseudo_log_likelihoods(trained, test_ids)
        right[ZERO_SHOT] = [
            accuracies(task, likelihoods.expand(2, -1).T, test)[0]
        ] * len(draws)

    confusion = np.zeros((n_names, n_names), dtype=int)
    # of all probes; those of all characters are too large
    frozen = None
    if task.kind != CHARACTER:
        frozen = features_of(Classifier(trained.model, n_names, task.kind), test_ids)
    began = time.monotonic()
    for i, draw in enumerate(draws):
        if i:
            left = (time.monotonic() - began) / i * (len(draws) - i)
            report(f"about {left:.0f} s left for {in_one_line(task.name)}")

        started = time.monotonic()
        for name, learned in learn(
            trained, task, task.draw(n_labels, draw), test, draw
        ):
            scores = learned
            if isinstance(learned, Classifier):
                features = frozen if learned.model is trained.model else None
                scores = scores_of(learned, test_ids, features)

            correct, counts = accuracies(task, scores, test)
            if name == PRETRAINED:
                predicted = scores.argmax(1).numpy()
                labels = test.all_labels.numpy()
                confusion += confusion_matrix(labels, predicted, labels=range(n_names))
                tuned = tuned or [learned]

            right.setdefault(name, []).append(correct)
            share = float(correct.sum() / counts.sum())
            report(
                f"draw {draw}, {name}: {share:.3f} ({time.monotonic() - started:.1f} s)"
            )
            started = time.monotonic()

    rows = {name: torch.stack(each).numpy() for name, each in right.items()}

    return Answers(rows, counts.numpy(), confusion, tuned[0])


def report(progress: str) -> None:
    print(f"    {progress}", file=sys.stderr, flush=True)


def results(
    right: dict[str, np.ndarray], counts: np.ndarray, ceiling: float | None
) -> dict[str, Any]:
    """Print and return the score of each method, and the gain of the fine-tuned model over the
    others."""
    scores = {name: interval(rows, counts) for name, rows in right.items()}
    for name, score in scores.items():
        mean = with_error(f"{score['mean']:.3f}", score["margin"])
        print(f"  {name:24} {mean}")

    first_draw = float(right[PRETRAINED][0].sum() / counts.sum())
    summary: dict[str, Any] = {"scores": scores, "first draw": first_draw}
    if ceiling is not None:
        print(f"  {'ceiling':24} {ceiling:.3f}")
        summary["ceiling"] = ceiling

    closed = gap_closed(summary)
    if closed is not None:
        share = f"{closed:.0%} of the gap between the best baseline and the ceiling is closed"
        print(f"  {share if closed > 0 else 'the best baseline is better'}")

    gains = {}
    for name in (FROM_SCRATCH, NGRAMS, CONTEXT):
        if name in right:
            gain = interval(right[PRETRAINED] - right[name], counts)
            gain["verdict"] = verdict(gain, name)
            gains[name] = gain
            mean = with_error(f"{gain['mean']:+.3f}", gain["margin"])
            print(f"  gain over {name + ':':19} {mean}, {gain['verdict']}")

    return summary | {"gains": gains}


def learn(
    trained: Trained, task: Task, examples: Sequence[Example], test: Units, draw: int
) -> Iterator[tuple[str, Any]]:
    """The methods for one draw of labels, one after the other: the name, and the classifier that
    learned from them or its scores of the test."""
    labelled = units(task, examples, trained.longest_text)
    labels = labelled.labels
    ids = token_ids(labelled.texts, trained)
    n_labels = len(label_names(task))

    probe = probed(Classifier(trained.model, n_labels, task.kind), ids, labels)
    effort = effort_for(probe, ids, labels, draw)
    yield PRETRAINED, fine_tuned(probe, ids, labels, **effort, seed=draw)
    yield PROBE, probe

    initial = untrained({**trained.values, "seed": draw}, trained.vocabulary)
    start = probed(Classifier(initial, n_labels, task.kind), ids, labels)
    yield FROM_SCRATCH, fine_tuned(start, ids, labels, **UNTRAINED, seed=draw)

    if task.kind == CHARACTER:
        yield CONTEXT, by_context(labelled, test, n_labels)
    else:
        yield NGRAMS, by_ngrams(labelled, test, n_labels)

    if task.kind != CHOICE:
        pool = units(task, task.pool, trained.longest_text)
        yield FREQUENT, by_frequency(pool, test, n_labels)


def effort_for(
    probe: Classifier, ids: Sequence[Tensor], labels: list[Tensor], seed: int
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
        tuned = fine_tuned(inner, ids[n:], labels[n:], **effort, seed=seed)
        log_probs = (
            scores_of(tuned, ids[:n]).log_softmax(-1).clamp(min=math.log(UNSEEN))
        )
        return F.nll_loss(
            log_probs, torch.cat(labels[:n]), ignore_index=NO_LABEL
        ).item()

    return min((GENTLE, STRONG), key=loss)


def print_unknown(trained: Trained, task: Task) -> None:
    """Print how many texts are cut, and how many characters the run cannot read."""
    texts = texts_of([*task.pool, *task.test])
    n_long = n_cut(texts, trained)
    if n_long:
        longest = f"{trained.longest} {trained.vocabulary.tokens}"
        print(
            f"{n_long:,} texts are longer than the run's windows: they are cut to {longest}"
        )

    n_missing = n_unknown(texts, trained.vocabulary)
    if n_missing:
        read_as = "[MASK]" if trained.vocabulary.unknown_token is None else "[UNK]"
        of_all = f"{n_missing:,} of {sum(map(len, texts)):,} characters"
        print(
            f"{of_all} are not in the run's vocabulary: the models read them as {read_as}"
        )
        if trained.vocabulary.is_characters:
            print(
                "    (to teach them: python experiment.py --init-from RUN data.corpus=PATH)"
            )
