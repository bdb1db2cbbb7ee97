"""Compares a pretrained model with the same model from scratch, and with simpler methods, on tasks
with few labels."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from configs.keys import ConfigError
from data.tasks.task import CHARACTER, CHOICE, LABELS, NUMBER, OF_TOKENS, Example, Task
from runs.statistics import margin_of_sum, with_error
from runs.terminal import in_one_line
from trained.baselines import by_context, by_frequency
from trained.classification import in_bfloat16, probed
from trained.classifier import Classifier, features_of, scores_of
from trained.effort import OF_PRETRAINED, OF_UNTRAINED, Known, chosen, tuned
from trained.examples import (
    Reading,
    Units,
    accuracies,
    balancing,
    label_names,
    measure_of,
    n_long,
    n_unknown,
    reading_of,
    units,
)
from trained.load import Trained, untrained
from trained.ngrams import Ngrams, by_ngrams
from trained.per_label import details
from trained.regression import Weight
from trained.task_results import (
    COMBINED,
    CONTEXT,
    FREQUENT,
    FROM_SCRATCH,
    MEAN,
    NGRAMS,
    PRETRAINED,
    PROBE,
    SCRATCH_COMBINED,
    WORD_CONTEXT,
    ZERO_SHOT,
    gap_closed,
    result_of,
)
from trained.zero_shot import pseudo_log_likelihoods

GAINS = (
    (COMBINED, SCRATCH_COMBINED),
    (COMBINED, NGRAMS),
    (PRETRAINED, FROM_SCRATCH),
    (PRETRAINED, NGRAMS),
    (PRETRAINED, CONTEXT),
    (PRETRAINED, WORD_CONTEXT),
)


class Parts(NamedTuple):
    """A fine-tuned model and the n-grams beside it, if there are any."""

    classifier: Classifier
    weight: Weight  # of the model
    ngrams: Ngrams | None


class Answers(NamedTuple):
    """How many answers of each method are right."""

    # method -> `[n_draws, n_test]`: per test example, which may have many labels
    right: dict[str, np.ndarray]
    counts: np.ndarray  # [n_test], all answers
    scores: list[Tensor]  # [n_units, n_labels] of the result, per draw
    truth: list[Tensor]  # the labels of the test, as in `Units`
    learned: Parts  # the result of the first draw


def verdict(gain: dict[str, Any], over: str) -> str:
    """A gain counts if its interval does not contain zero. Only the gain over the same model from
    scratch is that of pretraining."""
    if gain["margin"] is None:
        return "no verdict"
    if abs(gain["mean"]) <= gain["margin"]:
        return "not certain: the interval contains zero"
    is_better = gain["mean"] > 0
    if over in (FROM_SCRATCH, SCRATCH_COMBINED):
        return "pretraining helps" if is_better else f"pretraining hurts: below {over}"
    return "better" if is_better else f"worse: below {over}"


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
) -> tuple[dict[str, Any], Parts]:
    """Learn the task with every method, from `n_labels` examples in `n_draws` draws; print and
    return the results, and the result of the first draw.

    Raises ConfigError for labels of characters if the run's tokens are not characters, and for
    numbers and several labels per text if the task is balanced.
    """
    title = in_one_line(task.name)
    if task.kind == CHARACTER and not trained.vocabulary.is_characters:
        tokens = trained.vocabulary.tokens
        raise ConfigError(
            f"{title} has a label per character, and the run's tokens are {tokens}"
        )

    if task.balanced and task.kind in (NUMBER, LABELS):
        raise ConfigError(f"{title}: --balanced needs one label per text or part of it")

    names = label_names(task)
    n_pool = len(task.pool)
    n_labelled = min(n_labels, n_pool)
    sizes: dict[str, Any] = {
        "labelled": n_labelled,
        "test": len(task.test),
        "draws": n_draws,
    }
    print(
        f"{title}: {n_labelled} labelled of {n_pool}, {len(task.test)} for testing,"
        f" {len(names)} labels, {n_draws} draw{'s' * (n_draws > 1)} of labels",
        flush=True,
    )
    sizes["measure"] = measure_of(task)
    print(f"the scores are the {measure_of(task)}")
    print_unknown(trained, task)
    answers = answers_of(trained, task, n_labels, range(n_draws))
    scores = results(answers.right, answers.counts, ceiling_of(task))
    more = details(task.kind, answers.scores, answers.truth, names)

    return sizes | scores | more, answers.learned


def ceiling_of(task: Task) -> float | None:
    """The best possible score; None if it is unknown."""
    return None if task.ceiling is None or task.balanced else task.ceiling()


def texts_of(examples: Sequence[Example]) -> list[str]:
    texts: list[str] = []
    for example in examples:
        texts += example.texts
    return texts


class Test(NamedTuple):
    """The test of a task."""

    units: Units
    reading: Reading
    # the features of all probes; those of all tokens are too large
    frozen: Tensor | None

    def scores(self, classifier: Classifier, frozen: Tensor | None = None) -> Tensor:
        """The scores of a classifier, `[n_units, n_labels]`."""
        scores = scores_of(classifier, self.reading.ids, frozen)
        return self.reading.of_units(scores)


def answers_of(trained: Trained, task: Task, n_labels: int, draws: range) -> Answers:
    """Learn the task with every method, once per draw, and answer its test."""
    part = units(task, task.test)
    n_names = len(label_names(task))
    reading = reading_of(part.texts, task.kind, trained)
    frozen = None
    if task.kind not in OF_TOKENS:
        reader = Classifier(trained.model, n_names, task.kind, trained.longest)
        with in_bfloat16(reader.d_model):
            frozen = features_of(reader, reading.ids)
    test = Test(part, reading, frozen)
    right: dict[str, list[Tensor]] = {}
    learned: list[Parts] = []
    if task.kind == CHOICE:  # needs no labels
        report(f"{ZERO_SHOT}: each character of {len(part.texts):,} texts")
        likelihoods = pseudo_log_likelihoods(trained, reading.ids)
        right[ZERO_SHOT] = [
            accuracies(task, likelihoods.expand(2, -1).T, part)[0]
        ] * len(draws)

    of_result: list[Tensor] = []
    result = PRETRAINED if task.kind in OF_TOKENS else COMBINED
    began = time.monotonic()
    for i, draw in enumerate(draws):
        if i:
            left = (time.monotonic() - began) / i * (len(draws) - i)
            report(f"about {left:.0f} s left for {in_one_line(task.name)}")

        started = time.monotonic()
        for name, scores, parts in learn(
            trained, task, task.draw(n_labels, draw), test, draw
        ):
            correct, counts = accuracies(task, scores, part)
            if parts is not None and name == result:
                of_result.append(scores)
                learned = learned or [parts]

            right.setdefault(name, []).append(correct)
            share = float(correct.sum() / counts.sum())
            report(
                f"draw {draw}, {name}: {share:.3f} ({time.monotonic() - started:.1f} s)"
            )
            started = time.monotonic()

    rows = {name: torch.stack(each).numpy() for name, each in right.items()}

    return Answers(rows, counts.numpy(), of_result, part.labels, learned[0])


def report(progress: str) -> None:
    print(f"    {progress}", file=sys.stderr, flush=True)


def results(
    right: dict[str, np.ndarray], counts: np.ndarray, ceiling: float | None
) -> dict[str, Any]:
    """Print and return the score of each method, and the gains of the result and of the fine-tuned
    model over the others."""
    scores = {name: interval(rows, counts) for name, rows in right.items()}
    for name, score in scores.items():
        mean = with_error(f"{score['mean']:.3f}", score["margin"])
        is_result = name == result_of(scores)
        print(f"  {name:24} {mean}{'  (the result)' * is_result}")

    first_draw = float(right[PRETRAINED][0].sum() / counts.sum())
    summary: dict[str, Any] = {"scores": scores, "first draw": first_draw}
    if ceiling is not None:
        print(f"  {'ceiling':24} {ceiling:.3f}")
        summary["ceiling"] = ceiling

    closed = gap_closed(summary)
    if closed is not None:
        share = f"{closed:.0%} of the gap between the best baseline and the ceiling is closed"
        print(f"  {share if closed > 0 else 'the best baseline is better'}")

    return summary | {"gains": gains_of(right, counts)}


def gains_of(right: dict[str, np.ndarray], counts: np.ndarray) -> dict[str, Any]:
    """Print and return the gains of the pretrained model with n-grams, and alone."""
    gains: dict[str, Any] = {}
    for name, over in GAINS:
        if name not in right or over not in right:
            continue
        gain = interval(right[name] - right[over], counts)
        gain["verdict"] = verdict(gain, over)
        gains.setdefault(name, {})[over] = gain
        mean = with_error(f"{gain['mean']:+.3f}", gain["margin"])
        print(f"  {name}, gain over {over}: {mean}, {gain['verdict']}")

    return gains


class Learned(NamedTuple):
    """What a method has learned from one draw of labels."""

    name: str
    scores: Tensor  # [n_units, n_labels], of the test
    parts: Parts | None = None


def learn(
    trained: Trained, task: Task, examples: Sequence[Example], test: Test, draw: int
) -> Iterator[Learned]:
    """The methods for one draw of labels, one after the other."""
    labelled = units(task, examples)
    n_labels = len(label_names(task))
    weights = None
    if task.balanced:
        weights = balancing(labelled.all_labels, n_labels)
    ngrams = None
    if task.kind not in OF_TOKENS:
        ngrams = by_ngrams(labelled, n_labels, weights)
        of_ngrams = ngrams.scores(test.units.texts)

    ids, _ = reading = reading_of(labelled.texts, task.kind, trained)
    labels = reading.of_tokens(labelled.labels)
    initial = untrained({**trained.values, "seed": draw}, trained.vocabulary)
    with in_bfloat16(trained.values["model.d_model"]):
        for model, efforts, names in (
            (trained.model, OF_PRETRAINED, (PRETRAINED, COMBINED, PROBE)),
            (initial, OF_UNTRAINED, (FROM_SCRATCH, SCRATCH_COMBINED)),
        ):
            start = Classifier(model, n_labels, task.kind, trained.longest)
            start.weights = weights
            features = None if ngrams is None else features_of(start, ids)
            known = Known(ids, labels, features)
            probe = probed(start, *known)
            effort, weight = choice = chosen(probe, known, efforts, draw)
            report(f"draw {draw}, {names[0]}: {choice.told()}")
            classifier = tuned(probe, known, effort, draw)
            scores = test.scores(classifier)
            yield Learned(names[0], scores, Parts(classifier, weight, None))
            if ngrams is not None:
                both = ngrams.beside(scores, weight, of_ngrams)
                share = ngrams.own.share / (ngrams.own.share + weight.share)
                report(f"draw {draw}, {names[1]}: share of n-grams {share:.0%}")
                beside = ngrams if share else None
                yield Learned(names[1], both, Parts(classifier, weight, beside))
            for name in names[2:]:
                yield Learned(name, test.scores(probe, test.frozen))

    if ngrams is None:
        name = CONTEXT if task.kind == CHARACTER else WORD_CONTEXT
        yield Learned(name, by_context(labelled, test.units, n_labels, weights))
    else:
        yield Learned(NGRAMS, of_ngrams)

    if task.kind != CHOICE:
        pool = units(task, task.pool)
        name = MEAN if task.kind == NUMBER else FREQUENT
        yield Learned(name, by_frequency(pool, test.units, n_labels))


def print_unknown(trained: Trained, task: Task) -> None:
    """Print how many texts are read in windows, and how many characters the run cannot read."""
    texts = texts_of([*task.pool, *task.test])
    n_in_windows = n_long(texts, trained)
    if n_in_windows:
        print(
            f"{n_in_windows:,} of {len(texts):,} texts are longer than {trained.longest}"
            f" {trained.vocabulary.tokens}: the models read them in windows of at most this length"
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
