import copy
import warnings
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.sparse import random_array, vstack
from sklearn.linear_model import LogisticRegression, Ridge
from torch.nn.functional import nll_loss

from configs.keys import ConfigError
from data.tasks.task import (
    CHARACTER,
    CHOICE,
    LABELS,
    NUMBER,
    PAIR,
    TEXT,
    WORDS,
    Example,
    Task,
)
from tests.conftest import slow
from tests.data.masking.helpers import generator
from trained import classification, effort, regression
from trained.classification import excerpt, fine_tuned, probed
from trained.classifier import Classifier, features_of, scores_of
from trained.comparison import compare, interval, verdict
from trained.examples import (
    NO_LABEL,
    Units,
    accuracies,
    balancing,
    folds_of,
    shares_of,
    token_ids,
    units,
)
from trained.ngrams import Ngrams, by_ngrams, in_few_dimensions
from trained.regression import Regression, Weight, known_weight, readings
from trained.task_results import NGRAMS, PRETRAINED
from trained.zero_shot import pseudo_log_likelihoods

TEXTS = [("the cat sat", "a dog ran")[i % 2] + " on"[: i % 4] for i in range(40)]
ANIMALS = ("cat", "dog")
GENERATOR = generator()
RATES = {"learning_rate": 1e-3, "table_learning_rate": 5e-3}
FROZEN_TABLE = RATES | {"table_learning_rate": 0.0}


def of_first_letter(n):
    """A task whose label is the first letter."""
    texts = [f"{'at'[i % 2]} cat {'door'[: i % 5]}" for i in range(n)]
    examples = [Example((text,), text[0]) for text in texts]
    return Task("first letter", TEXT, examples[: n // 2], examples[n // 2 :])


def of_letters(n):
    """A tagging task: is a letter one of a to m? Other characters have no label."""

    def label_of(character):
        if not character.isalpha():
            return None
        return "early" if character < "n" else "late"

    examples = [Example((text,), list(map(label_of, text))) for text in TEXTS]
    return Task("letters", CHARACTER, examples[: n // 2], examples[n // 2 : n])


def of_equal_pairs(n):
    """A task on pairs: are both texts about the same animal?"""
    examples = []
    for one, other in torch.randint(2, (n, 2), generator=GENERATOR).tolist():
        texts = (f"the {ANIMALS[one]} sat", f"a {ANIMALS[other]} ran")
        examples.append(Example(texts, "same" if one == other else "other"))

    return Task("pairs", PAIR, examples[: n // 2], examples[n // 2 :])


def of_words(n):
    """A tagging task: which words are animals?"""
    tags = {"cat": "B-CAT", "dog": "B-DOG"}
    examples = []
    for text in TEXTS:
        of_text = [tags.get(word, "O") for word in text.split()]
        examples.append(Example((text,), of_text))

    return Task("words", WORDS, examples[: n // 2], examples[n // 2 : n])


def of_nothing(n):
    """A task whose label is random."""
    draws = torch.randint(2, (n,), generator=generator(1))
    examples = []
    for i, draw in enumerate(draws.tolist()):
        examples.append(Example((TEXTS[i % 40] + " ",), "xy"[draw]))

    return Task("nothing", TEXT, examples[: n // 2], examples[n // 2 :])


def units_of(trained, task):
    """The units of a task's pool, and their token ids."""
    part = units(task, task.pool)
    return part, token_ids(part.texts, trained)


def classifier(trained, n_labels=2, kind=TEXT):
    return Classifier(copy.deepcopy(trained.model), n_labels, kind)


@pytest.mark.parametrize(
    "task",
    [of_letters(40), *slow(of_first_letter(80), of_equal_pairs(80), of_words(40))],
    ids=lambda task: task.name,
)
def test_a_task_that_the_text_decides_is_learned_by_all_methods(
    with_ngrams, task, capsys
):
    results, _ = compare(with_ngrams, task, n_labels=32, n_draws=2)
    scores = {name: score["mean"] for name, score in results["scores"].items()}

    assert scores.pop("most frequent label") < 0.8
    assert min(scores.values()) > 0.97, scores

    labels = units(task, task.test).all_labels

    # of two draws
    assert np.sum(results["confusion"]) == 2 * (labels != NO_LABEL).sum()
    assert "not certain" in capsys.readouterr().out


def test_a_task_that_nothing_decides_is_not_learned_by_any(with_ngrams):
    results, _ = compare(with_ngrams, of_nothing(400), n_labels=32, n_draws=2)
    means = [score["mean"] for score in results["scores"].values()]

    assert min(means) > 0.38
    assert max(means) < 0.62

    verdicts = {gain["verdict"] for gain in results["gains"][PRETRAINED].values()}
    assert verdicts.isdisjoint(["pretraining helps", "better"])


@pytest.mark.parametrize(("kind", "n"), [(TEXT, 1), (CHARACTER, 1), (PAIR, 2)])
def test_the_scores_of_a_text_do_not_depend_on_those_beside_it(with_ngrams, kind, n):
    model = classifier(with_ngrams, kind=kind).eval()
    _, ids = units_of(with_ngrams, of_first_letter(40))
    together = scores_of(model, ids)

    alone = []
    for i in range(0, len(ids), n):
        alone.append(scores_of(model, ids[i : i + n]))

    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_probe_changes_the_linear_layer_only_and_fine_tuning_the_encoder_only(
    with_ngrams,
):
    """The n-gram table has a rate of its own."""
    part, ids = units_of(with_ngrams, of_first_letter(40))
    probe = probed(classifier(with_ngrams), ids, part.labels)
    before = with_ngrams.encoder.state_dict()

    def changed(tuned):
        weights = tuned.model.encoder.state_dict().items()
        parts = set()
        for name, weight in weights:
            if not torch.equal(before[name], weight):
                parts.add(name.split(".")[0])

        return parts

    def tuned(rates, seed):
        return fine_tuned(probe, ids, part.labels, **rates, n_steps=30, seed=seed)

    first = tuned(FROZEN_TABLE, 0)
    other = tuned(RATES, 1)

    assert changed(probe) == set()
    assert "layers" in changed(first)
    assert changed(other) - changed(first) == {"ngrams"}
    assert torch.equal(first.output.weight, probe.output.weight)

    norm = first.model.encoder.final_norm.weight
    assert torch.equal(norm, tuned(FROZEN_TABLE, 0).model.encoder.final_norm.weight)
    # another seed draws other batches
    assert not torch.equal(norm, other.model.encoder.final_norm.weight)


def test_a_part_of_the_units_has_all_folds(monkeypatch):
    monkeypatch.setattr(regression, "MAX_COMPARED", 16)
    draws = np.random.default_rng(0)
    target = draws.integers(2, size=64)
    features = np.stack([draws.normal(size=64), target], 1)
    choices = [np.array([i]) for i in (0, 1)]
    fold = np.arange(64) % 4

    columns, _ = Regression(TEXT, 2).best(features, target, fold, choices, [1.0])

    assert columns.tolist() == [1]


def test_a_probe_of_characters_reads_no_more_texts_than_fit_into_memory(
    with_ngrams, monkeypatch
):
    monkeypatch.setattr(classification, "MAX_CHARACTERS", 100)
    part, ids = units_of(with_ngrams, of_letters(40))
    features = Mock(wraps=classification.features_of)
    monkeypatch.setattr(classification, "features_of", features)

    probed(classifier(with_ngrams, kind=CHARACTER), ids, part.labels)

    (_, texts), _ = features.call_args

    assert 50 <= sum(map(len, texts)) <= 100


@pytest.mark.parametrize("rate", [100.0, 1_000.0])
@pytest.mark.parametrize("kind", [TEXT, CHARACTER, PAIR])
def test_a_rate_that_ruins_the_model_is_not_chosen(with_ngrams, kind, rate):
    """The higher rate lets it diverge to NaN."""
    tasks = {TEXT: of_first_letter, CHARACTER: of_letters, PAIR: of_equal_pairs}
    part, ids = units_of(with_ngrams, tasks[kind](40))
    known = effort.Known(ids, part.labels, None)
    probe = probed(classifier(with_ngrams, kind=kind), *known)
    ruinous = effort.STRONG | {"learning_rate": rate, "n_steps": 4}
    others = effort.STRONG | {"n_steps": 4}
    for efforts in ((ruinous, others), (others, ruinous), (ruinous, effort.FROZEN)):
        choice = effort.chosen(probe, known, efforts, seed=0)
        assert choice.effort != ruinous


def test_being_too_certain_does_not_count_against_an_effort():
    labels = torch.arange(100) % 2
    right = torch.eye(2)[labels]
    certain = torch.where(torch.arange(100)[:, None] < 10, -9, 9) * right
    doubtful = torch.where(torch.arange(100)[:, None] < 35, -0.5, 0.5) * right

    def loss(scores):
        return regression.calibrated(TEXT, readings(TEXT, scores), labels)[0]

    assert nll_loss(certain.log_softmax(1), labels) > nll_loss(
        doubtful.log_softmax(1), labels
    )
    assert loss(certain) < loss(doubtful)


def test_ngrams_count_if_they_know_the_labels(plain):
    part, _ = units_of(plain, of_first_letter(80))
    right = torch.eye(2)[part.all_labels]
    nothing = torch.zeros(len(right), 2)
    model = Weight(2.0, 0.01)
    informed = by_ngrams(part, 2)
    both = informed.beside(nothing, model, 9 * right)

    assert informed.own.share > 0
    assert both.argmax(1).tolist() == part.all_labels.tolist()

    for blind in (
        Units(["same"] * len(part.texts), part.labels, TEXT),
        units_of(plain, of_nothing(80))[0],
    ):
        ngrams = by_ngrams(blind, 2)
        alone = ngrams.beside(right, model, -right)
        assert ngrams.own.share == 0
        assert torch.allclose(alone, 2 * readings(TEXT, right))


def test_a_weight_is_the_scale_of_calibrated_probabilities_and_what_they_know():
    """Scores that are too certain, some that know less, and some that know nothing."""
    rng = generator(3)
    scores = torch.randn(4_000, 3, generator=rng, dtype=torch.float64)
    labels = scores.softmax(1).multinomial(1, generator=rng)[:, 0]
    noise = torch.randn(4_000, 3, generator=rng)
    certain = known_weight(TEXT, 2.83 * scores, labels)
    doubtful = known_weight(TEXT, scores + noise, labels)

    assert certain.scale == pytest.approx(1 / 2.83, abs=0.01)
    assert certain.share > 1.5 * doubtful.share > 0
    assert known_weight(TEXT, noise, labels).share == 0


def test_the_mean_of_two_numbers_is_weighted_by_what_each_knows():
    given = torch.tensor([[0.0], [2.0], [4.0], [6.0]])
    close = given + torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    weight = known_weight(NUMBER, close, given)

    # 1 - 1 / 5, the R^2
    assert weight == pytest.approx((1.0, 0.8))
    assert known_weight(NUMBER, 6 - given, given).share == 0

    ngrams = Ngrams(NUMBER, None, None, None, weight)
    both = ngrams.beside(given, Weight(1.0, 0.4), close)
    assert torch.allclose(both, (given + 2 * close).double() / 3)


def test_a_long_text_is_read_to_its_end(plain):
    """Only the end of each text decides, beyond the longest window."""
    texts = [f"{'the cat sat on a mat. ' * 9}{'od'[i % 2] * 12}" for i in range(32)]
    labels = [torch.tensor([i % 2]) for i in range(32)]
    ids = token_ids(texts, plain)
    start = Classifier(plain.model, 2, TEXT, plain.longest)
    probe = probed(start, ids, labels)

    assert len(texts[0]) > 3 * plain.longest
    assert (scores_of(probe, ids).argmax(1) == torch.cat(labels)).all()


def test_steps_of_fine_tuning_read_half_a_window_from_anywhere_in_a_long_text():
    text = torch.arange(21)
    begins = set()
    for seed in range(200):
        part = excerpt(text, 20, generator(seed))
        begins.add(int(part[0]))
        assert torch.equal(part, text[part[0] : part[0] + 10])

    assert begins == set(range(12))
    assert excerpt(text, 21, generator()) is text


def test_the_windows_of_a_text_have_the_mean_and_the_maximum_of_all_its_tokens(plain):
    reader = Classifier(plain.model, 2, TEXT, longest=7)
    texts = token_ids(["the cat sat on the", "a", "a dog ran on"], plain)
    windows, counts = reader.windows_of(texts)
    together = features_of(reader, texts)
    of_windows = features_of(reader, windows)

    assert counts.tolist() == [3, 1, 2]
    assert max(map(len, windows)) <= 7
    assert torch.equal(torch.cat(windows), torch.cat(texts))

    mean, largest, first = of_windows[:3].chunk(3, 1)
    share = torch.tensor([6, 6, 6]) / 18
    expected = [(mean * share[:, None]).sum(0), largest.amax(0), first[0]]

    assert torch.allclose(together[0], torch.cat(expected), atol=1e-5)
    assert torch.allclose(together[1], of_windows[3], atol=1e-5)


def test_characters_of_a_long_text_all_have_a_label(plain):
    reader = Classifier(plain.model, 2, CHARACTER, longest=7)
    texts = token_ids(["the cat sat on the", "a"], plain)

    assert scores_of(reader, texts).shape == (19, 2)


def test_few_dimensions_give_the_scores_of_all_features():
    some = random_array((12, 300), density=0.1, rng=12, format="csr")
    labelled = vstack([some, some[:3]]).tocsr()  # equal texts add no dimension
    test = random_array((30, 300), density=0.1, rng=30, format="csr")

    def scores(labelled, test):
        regression = LogisticRegression(tol=1e-8)
        regression.fit(labelled, np.arange(15) % 3)
        return regression.decision_function(test)

    known, axes = in_few_dimensions(labelled)
    fewer = scores(known, test @ labelled.T @ axes)

    assert known.shape == (15, 12)

    np.testing.assert_allclose(fewer, scores(labelled, test), atol=1e-5)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_probe_of_few_units_has_the_weights_of_a_regression_on_all_features(n_labels):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 200))
    labels = np.arange(20) % n_labels
    other = rng.normal(size=(50, 200))
    whole = LogisticRegression(C=0.1, max_iter=1_000, tol=1e-8).fit(features, labels)

    weight, bias = Regression(TEXT, n_labels).fitted(features, labels, 0.1, tol=1e-8)
    scores = torch.from_numpy(other @ weight.T + bias)

    np.testing.assert_allclose(scores.softmax(1), whole.predict_proba(other), atol=1e-6)


def test_a_ridge_of_few_units_has_the_weights_of_one_on_all_features():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 200))
    numbers = rng.normal(size=(20, 1)) + 7
    whole = Ridge(2.0).fit(features, numbers[:, 0])

    weight, bias = Regression(NUMBER, 1).fitted(features, numbers, 0.5)

    np.testing.assert_allclose(weight[0], whole.coef_, atol=1e-8)
    assert bias[0] == pytest.approx(whole.intercept_)


def test_several_labels_are_regressions_of_their_own():
    """One label is never given, and one always."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 5))
    given = np.stack([features[:, 0] > 0, np.zeros(40), np.ones(40)], 1).astype(float)

    weight, bias = Regression(LABELS, 3).fitted(features, given, 10.0)
    scores = features @ weight.T + bias

    assert ((scores > 0) == given).all()


def of_animals(n):
    """A task with several labels: the animals in a text, of which there may be none."""
    names = ([], ["cat"], ["dog"], ["cat", "dog"])
    examples = []
    for i in range(n):
        some = names[i % 4]
        text = f"the {' and the '.join(some)} sat {'on the mat'[: i % 7]}"
        examples.append(Example((text,), tuple(some)))
    return Task("animals", LABELS, examples[: n // 2], examples[n // 2 :])


def of_lengths(n):
    """A task with a number: how much of a text is about cats, from 100 on."""
    examples = []
    for i in range(n):
        text = " cat" * (i % 5) + " dog" * (4 - i % 5) + " ran"[: i % 7]
        examples.append(Example((text,), str(100 + i % 5)))
    return Task("lengths", NUMBER, examples[: n // 2], examples[n // 2 :])


@pytest.mark.parametrize(
    "task",
    [of_lengths(80), *slow(of_animals(80))],
    ids=lambda task: task.name,
)
def test_numbers_and_several_labels_are_learned_by_all_methods(plain, task, capsys):
    results, _ = compare(plain, task, n_labels=40, n_draws=2)
    scores = {name: score["mean"] for name, score in results["scores"].items()}
    nothing = scores.pop("mean of the numbers", None)

    if task.kind == NUMBER:
        assert nothing == pytest.approx(0.0, abs=0.01)
        assert results["Spearman correlation"] > 0.9
        assert results["mean absolute error"] < 0.5
    else:
        assert scores.pop("most frequent label") < 0.6
        assert results["micro F1"] > 0.9

    assert min(scores.values()) > 0.9, scores


def test_the_measures_of_numbers_and_of_several_labels():
    numbers = torch.tensor([[0.0], [2.0], [4.0]])
    shares = shares_of(NUMBER, torch.tensor([[1.0], [2.0], [4.0]]), numbers.double())
    # R^2 = 1 - 1 / 8
    assert shares.mean() == pytest.approx(1 - 1 / 8)

    given = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]).double()
    scores = torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]])
    assert shares_of(LABELS, scores, given).tolist() == pytest.approx([1, 2 / 3, 1])


def test_a_balanced_score_is_the_mean_recall():
    examples = [Example((text,), text[0]) for text in ("a", "ab", "ac", "b")]
    task = Task("t", TEXT, examples, examples, balanced=True)
    scores = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    right, counts = accuracies(task, scores, units(task, examples))

    # 2 of 3 a, and 0 of 1 b
    assert right.sum() / counts.sum() == pytest.approx((2 / 3 + 0) / 2)


def test_every_label_has_the_same_weight():
    labels = torch.tensor([0, 0, 0, NO_LABEL, 2])
    weights = balancing(labels, 3)

    assert weights[1] == 0
    assert 3 * weights[0] == pytest.approx(float(weights[2]))
    assert weights[labels[labels != NO_LABEL]].mean() == pytest.approx(1)

    scores = torch.randn(5, 3, generator=generator())
    losses = [
        regression.loss_of(TEXT, scores[rows], labels[rows])
        for rows in ([0, 1, 2], [4])
    ]
    loss = regression.loss_of(TEXT, scores, labels, weights)
    assert loss == pytest.approx(sum(losses) / 2)


def with_a_rare_label(n):
    """A task in which one text of twenty has the label `rare`, and nothing tells them apart well."""
    draws = np.random.default_rng(0)
    examples = []
    for i in range(n):
        label = "other" if i % 20 else "rare"
        odds = (0.4, 0.6) if i % 20 else (0.6, 0.4)
        words = draws.choice(ANIMALS, 6, p=odds)
        examples.append(Example((f"{' '.join(words)} {i}",), label))
    return Task("rare", TEXT, examples[: n // 2], examples[n // 2 :])


def test_balanced_learners_find_a_rare_label(plain):
    task = with_a_rare_label(400)
    part, ids = units_of(plain, task)
    test = units(task, task.test)
    is_rare = test.all_labels == task.labels.index("rare")
    recalls = {}
    for weights in (None, balancing(part.all_labels, 2)):
        start = classifier(plain)
        start.weights = weights
        probe = probed(start, ids, part.labels)
        tuned = fine_tuned(probe, ids, part.labels, n_steps=1, seed=0, **FROZEN_TABLE)
        texts = token_ids(test.texts, plain)
        for name, scores in (
            ("probe", scores_of(probe, texts)),
            ("tuned", scores_of(tuned, texts)),
            ("n-grams", by_ngrams(part, 2, weights).scores(test.texts)),
        ):
            found = scores[is_rare].argmax(1) == 1
            recalls.setdefault(name, []).append(float(found.double().mean()))

    for plain_recall, balanced_recall in recalls.values():
        assert balanced_recall > plain_recall + 0.2, recalls


def test_numbers_cannot_be_balanced(plain):
    with pytest.raises(ConfigError, match="--balanced needs one label"):
        compare(plain, replace(of_lengths(20), balanced=True), 8, 1)


def test_equal_scores_of_a_choice_are_wrong():
    task = Task("t", CHOICE, [], [Example(("a", "b"))] * 3)
    of_right = torch.tensor([2.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    scores = torch.stack([torch.zeros(6), of_right], 1)

    right, counts = accuracies(task, scores, units(task, task.test))

    assert right.tolist() == [1.0, 0.0, 0.0]
    assert counts.tolist() == [1.0, 1.0, 1.0]


def test_characters_without_a_label_do_not_count():
    example = Example(("abc",), ("x", None, "y"))
    task = Task("t", CHARACTER, [example], [example] * 2)
    part = units(task, task.test)

    assert part.all_labels.tolist() == [0, NO_LABEL, 1] * 2

    right, counts = accuracies(task, torch.tensor([[1.0, 0.0]] * 6), part)
    assert (right.tolist(), counts.tolist()) == ([1.0, 1.0], [2.0, 2.0])


@torch.inference_mode()
@pytest.mark.parametrize(("width", "period"), [(1, 100), (1, 4), (3, 5)])
def test_a_pseudo_log_likelihood_masks_neighbors_together(plain, width, period):
    texts = [plain.vocabulary.encode(text) for text in ("the cat", "a dog ran", "o")]
    totals = pseudo_log_likelihoods(plain, texts, width, period).tolist()

    for text, total in zip(texts, totals, strict=True):
        expected = 0.0
        for t, target in enumerate(text):
            # of the masked neighbors, and all other such groups
            for begin in range(t - width + 1, t + 1):
                is_masked = (torch.arange(len(text)) - begin) % period < width
                ids = text.masked_fill(is_masked, plain.vocabulary.mask_token)
                (logits,) = plain.model(ids[None], torch.tensor([t]))
                of_ordinary = logits[: plain.vocabulary.n_ordinary].double()
                log_prob = of_ordinary.log_softmax(0)[target]
                expected += log_prob.item() / width

        assert total == pytest.approx(expected, abs=1e-4)


def test_characters_that_the_run_does_not_know_become_masks_and_are_scored(plain):
    texts = token_ids(["the cat", "the cät"], plain)

    assert plain.vocabulary.decode(texts[0]) == "the cat"
    assert plain.vocabulary.decode(texts[1]) == "the c[MASK]t"

    known, unknown = pseudo_log_likelihoods(plain, texts).tolist()
    assert unknown != known
    assert unknown < 0


@pytest.mark.parametrize("kind", [TEXT, CHARACTER])
def test_labels_of_one_kind_only_are_learned_as_such(plain, kind):
    ids = token_ids(["the cat", "a dog"] * 4, plain)
    labels = []
    for text in ids:
        n = len(text) if kind == CHARACTER else 1
        labels.append(torch.ones(n, dtype=torch.int64))

    learned = probed(classifier(plain, 3, kind), ids, labels)

    assert scores_of(learned, ids).argmax(1).unique().tolist() == [1]


@pytest.mark.parametrize("of_draws", [0.01, 0.03, 0.1])
def test_an_interval_covers_the_truth_as_often_as_it_says(of_draws):
    """Draws and test texts have effects of their own. One test text gives no interval."""
    of_one_text = interval(np.ones((5, 1)), np.ones(1))

    assert verdict(of_one_text, NGRAMS) == "no verdict"

    draws = np.random.default_rng(0)
    covered = 0

    for _ in range(1_000):
        of_each_draw = draws.normal(0.5, of_draws, size=(5, 1))
        of_texts = draws.normal(0, 0.3, size=100)
        noise = draws.normal(0, 0.3, size=(5, 100))
        gain = interval(of_each_draw + of_texts + noise, np.ones(100))
        covered += abs(gain["mean"] - 0.5) <= gain["margin"]

    assert 0.925 < covered / 1_000 < 0.985


@pytest.mark.parametrize(
    ("has_bfloat16", "d_model", "dtype"),
    [
        (True, 128, torch.bfloat16),
        (True, 64, torch.float32),
        (False, 128, torch.float32),
    ],
)
def test_long_vectors_are_fine_tuned_in_bfloat16_on_cpus_that_have_it(
    few_steps, with_ngrams, monkeypatch, has_bfloat16, d_model, dtype
):
    monkeypatch.setattr(classification, "CPU_HAS_BFLOAT16", has_bfloat16)
    part, ids = units_of(with_ngrams, of_first_letter(40))
    start = classifier(with_ngrams)
    dtypes = set()
    start.d_model = d_model  # only the choice of the precision reads it here

    def note_dtype(module, inputs, output):
        dtypes.add(output.dtype)

    last = start.model.encoder.layers[-1].feed_forward.output
    last.register_forward_hook(note_dtype)

    fine_tuned(start, ids, part.labels, **RATES, n_steps=2, seed=0)

    assert dtypes == {dtype}


@pytest.mark.parametrize("n_rare", [1, 2, 3, 7])
def test_each_fold_has_its_share_of_a_rare_label(n_rare):
    """A draw begins with all examples of a rare label."""
    labels = [torch.tensor([1])] * n_rare + [torch.tensor([0])] * (64 - n_rare)
    fold = folds_of(labels, TEXT)
    in_folds = np.bincount(fold[:n_rare], minlength=4)

    assert np.bincount(fold).tolist() == [16] * 4
    assert in_folds.max() == -(-n_rare // 4)


def test_a_rare_label_lets_no_fit_of_the_baseline_fail():
    texts = [f"a rare text {i}" for i in range(7)] + [f"some {i}" for i in range(57)]
    labels = [torch.tensor([int(i < 7)]) for i in range(64)]
    part = Units(texts, labels, TEXT)
    with warnings.catch_warnings(action="error"):
        scores = by_ngrams(part, 2).scores(texts)

    assert scores.argmax(1).tolist() == part.all_labels.tolist()
