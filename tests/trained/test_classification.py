import copy

import numpy as np
import pytest
import torch
from scipy.sparse import random_array, vstack
from sklearn.linear_model import LogisticRegression

from data.tasks.task import CHARACTER, CHOICE, PAIR, TEXT, Example, Task
from trained import classification, comparison
from trained.baselines import in_few_dimensions
from trained.classification import fine_tuned, probed
from trained.classifier import Classifier, scores_of
from trained.comparison import compare, interval, verdict
from trained.examples import NO_LABEL, accuracies, token_ids, units
from trained.task_results import NGRAMS
from trained.zero_shot import pseudo_log_likelihoods

TEXTS = [("the cat sat", "a dog ran")[i % 2] + " on"[: i % 4] for i in range(40)]
GENERATOR = torch.Generator().manual_seed(0)
RATES = {"learning_rate": 1e-3, "table_learning_rate": 5e-3}
FROZEN_TABLE = RATES | {"table_learning_rate": 0.0}


def of_first_letter(n: int) -> Task:
    """A task whose label is the first letter."""
    texts = [f"{'at'[i % 2]} cat {'door'[: i % 5]}" for i in range(n)]
    examples = [Example((text,), text[0]) for text in texts]
    return Task("first letter", TEXT, examples[: n // 2], examples[n // 2 :])


def of_letters(n: int) -> Task:
    """A tagging task: is a letter one of a to m? Other characters have no label."""

    def label_of(character: str) -> str | None:
        if not character.isalpha():
            return None
        return "early" if character < "n" else "late"

    examples = [Example((text,), list(map(label_of, text))) for text in TEXTS]
    return Task("letters", CHARACTER, examples[: n // 2], examples[n // 2 : n])


def of_equal_pairs(n: int) -> Task:
    """A task on pairs: are both texts about the same animal?"""
    animals = [
        ("cat", "dog")[bit] for bit in torch.randint(2, (2 * n,), generator=GENERATOR).tolist()
    ]
    examples = [
        Example((f"the {first} sat", f"a {second} ran"), "same" if first == second else "other")
        for first, second in zip(animals[::2], animals[1::2], strict=True)
    ]
    return Task("pairs", PAIR, examples[: n // 2], examples[n // 2 :])


def of_nothing(n: int) -> Task:
    """A task whose label is random."""
    draws = torch.randint(2, (n,), generator=torch.Generator().manual_seed(1)).tolist()
    examples = [
        Example((TEXTS[i % 40] + f" {i % 7}".strip("0123456789"),), "xy"[draw])
        for i, draw in enumerate(draws)
    ]
    return Task("nothing", TEXT, examples[: n // 2], examples[n // 2 :])


def classifier(trained, n_labels: int = 2, kind: str = TEXT) -> Classifier:
    return Classifier(copy.deepcopy(trained.model), n_labels, kind)


@pytest.mark.parametrize(
    "task", [of_first_letter(80), of_letters(40), of_equal_pairs(80)], ids=lambda task: task.name
)
def test_a_task_that_the_text_decides_is_learned_by_all_methods(with_ngrams, task, capsys):
    results, _ = compare(with_ngrams, task, n_labels=32, n_draws=2)
    scores = {name: score["mean"] for name, score in results["scores"].items()}
    assert scores.pop("most frequent label") < 0.8
    assert min(scores.values()) > 0.97, scores
    labels = units(task, task.test, None).all_labels
    # of two draws
    assert np.sum(results["confusion"]) == 2 * (labels != NO_LABEL).sum()
    assert "no clear effect" in capsys.readouterr().out


def test_a_task_that_nothing_decides_is_not_learned_by_any(with_ngrams):
    results, _ = compare(with_ngrams, of_nothing(400), n_labels=32, n_draws=2)
    assert all(0.38 < score["mean"] < 0.62 for score in results["scores"].values()), results[
        "scores"
    ]
    assert not {"pretraining helps", "better"} & {
        gain["verdict"] for gain in results["gains"].values()
    }


@pytest.mark.parametrize(("kind", "n"), [(TEXT, 1), (CHARACTER, 1), (PAIR, 2)])
def test_the_scores_of_a_text_do_not_depend_on_those_beside_it(with_ngrams, kind, n):
    model = classifier(with_ngrams, kind=kind).eval()
    task = of_first_letter(40)
    ids = token_ids([example.texts[0] for example in task.pool], with_ngrams)
    together = scores_of(model, ids)
    alone = torch.cat([scores_of(model, ids[i : i + n]) for i in range(0, len(ids), n)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_a_probe_changes_the_linear_layer_only_and_fine_tuning_the_encoder_only(with_ngrams):
    """The n-gram table has a rate of its own."""
    task = of_first_letter(40)
    part = units(task, task.pool, 64)
    ids = token_ids(part.texts, with_ngrams)
    probe = probed(classifier(with_ngrams), ids, part.labels)
    before = with_ngrams.model.state_dict()
    assert all(
        torch.equal(weight, before[name]) for name, weight in probe.model.state_dict().items()
    )
    first, second, other = (
        fine_tuned(copy.deepcopy(probe), ids, part.labels, **rates, n_steps=30, seed=seed)
        for rates, seed in ((FROZEN_TABLE, 0), (FROZEN_TABLE, 0), (RATES, 1))
    )

    def changed(tuned: Classifier) -> set[str]:
        weights = tuned.model.encoder.state_dict()
        return {
            name.split(".")[0]
            for name, weight in weights.items()
            if not torch.equal(before[f"encoder.{name}"], weight)
        }

    assert changed(other) - changed(first) == {"ngrams"}
    assert "layers" in changed(first)
    assert torch.equal(first.output.weight, probe.output.weight)
    norms = [each.model.encoder.final_norm.weight for each in (first, second, other)]
    assert torch.equal(norms[0], norms[1])
    assert not torch.equal(norms[0], norms[2])  # another seed draws other batches


def test_a_part_of_the_units_has_all_folds(monkeypatch):
    monkeypatch.setattr(classification, "MAX_COMPARED", 16)
    generator = np.random.default_rng(0)
    target = generator.integers(2, size=64)
    features = np.stack([generator.normal(size=64), target], 1)
    candidates = [(np.array([i]), 1.0) for i in (0, 1)]
    (columns, _), _ = classification.regression(features, target, np.arange(64) % 4, candidates)
    assert columns.tolist() == [1]


def test_a_probe_of_characters_reads_no_more_texts_than_fit_into_memory(with_ngrams, monkeypatch):
    monkeypatch.setattr(classification, "MAX_CHARACTERS", 100)
    part = units(of_letters(40), of_letters(40).pool, 64)
    read = list[int]()
    of = classification.features_of

    def recorded(c, texts):
        read.append(sum(map(len, texts)))
        return of(c, texts)

    monkeypatch.setattr(classification, "features_of", recorded)
    probed(classifier(with_ngrams, kind=CHARACTER), token_ids(part.texts, with_ngrams), part.labels)
    assert 50 <= read[0] <= 100


def test_for_labels_of_characters_a_rate_that_ruins_the_model_is_not_chosen(
    with_ngrams, monkeypatch
):
    part = units(of_letters(40), of_letters(40).pool, 64)
    ids = token_ids(part.texts, with_ngrams)
    probe = probed(classifier(with_ngrams, kind=CHARACTER), ids, part.labels)
    for ruined, other in (("GENTLE", comparison.STRONG), ("STRONG", comparison.GENTLE)):
        with monkeypatch.context() as patch:
            patch.setattr(comparison, ruined, other | {"learning_rate": 10.0})
            assert comparison.effort_for(probe, ids, part.labels, seed=0) == other


def test_few_dimensions_give_the_scores_of_all_features():
    labelled, test = (random_array((n, 300), density=0.1, rng=n, format="csr") for n in (12, 30))
    labelled = vstack([labelled, labelled[:3]]).tocsr()  # equal texts add no dimension

    def scores(labelled, test):
        return LogisticRegression(tol=1e-8).fit(labelled, np.arange(15) % 3).decision_function(test)

    fewer = in_few_dimensions(labelled, test)
    assert fewer[0].shape == (15, 12)
    np.testing.assert_allclose(scores(*fewer), scores(labelled, test), atol=1e-5)


@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_probe_of_few_units_has_the_weights_of_a_regression_on_all_features(n_labels):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 200))
    labels = np.arange(20) % n_labels
    other = rng.normal(size=(50, 200))
    whole = LogisticRegression(C=0.1, max_iter=1_000, tol=1e-8).fit(features, labels)
    found = classification.fitted(features, labels, 0.1, tol=1e-8)
    np.testing.assert_allclose(found.coef_, whole.coef_, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(other), whole.predict_proba(other), atol=1e-6)


def test_equal_scores_of_a_choice_are_wrong():
    task = Task("t", CHOICE, [], [Example(("a", "b"))] * 3)
    scores = torch.tensor([[0.0, 2.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 2.0]])
    right, counts = accuracies(task, scores, units(task, task.test, 9))
    assert right.tolist() == [1.0, 0.0, 0.0]
    assert counts.tolist() == [1.0, 1.0, 1.0]


def test_characters_without_a_label_do_not_count():
    example = Example(("abc",), ("x", None, "y"))
    task = Task("t", CHARACTER, [example], [example] * 2)
    part = units(task, task.test, longest=9)
    assert part.all_labels.tolist() == [0, NO_LABEL, 1] * 2
    right, counts = accuracies(task, torch.tensor([[1.0, 0.0]] * 6), part)
    assert (right.tolist(), counts.tolist()) == ([1.0, 1.0], [2.0, 2.0])
    assert units(task, task.test, longest=2).all_labels.tolist() == [0, NO_LABEL] * 2
    # other tokens than characters are cut themselves
    assert units(task, task.test, longest=None).texts == ["abc"] * 2


@torch.inference_mode()
@pytest.mark.parametrize(("width", "period"), [(1, 100), (1, 4), (3, 5)])
def test_a_pseudo_log_likelihood_masks_neighbors_together(plain, width, period):
    texts = [plain.vocabulary.encode(text) for text in ("the cat", "a dog ran", "o")]
    found = pseudo_log_likelihoods(plain, texts, width, period)
    for text, total in zip(texts, found.tolist(), strict=True):
        expected = 0.0
        for t, target in enumerate(text):
            # of the masked neighbors, and all other such groups
            for begin in range(t - width + 1, t + 1):
                is_masked = (torch.arange(len(text)) - begin) % period < width
                ids = text.masked_fill(is_masked, plain.vocabulary.mask_token)
                logits = plain.model(ids[None], torch.tensor([t]))[0, : plain.vocabulary.n_ordinary]
                expected += float(logits.double().log_softmax(0)[target]) / width
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
    labels = [torch.ones(len(text) if kind == CHARACTER else 1, dtype=torch.int64) for text in ids]
    learned = probed(classifier(plain, 3, kind), ids, labels)
    assert scores_of(learned, ids).argmax(1).unique().tolist() == [1]


@pytest.mark.parametrize("of_draws", [0.01, 0.03, 0.1])
def test_an_interval_covers_the_truth_as_often_as_it_says(of_draws: float):
    """Draws and test texts have effects of their own. One test text gives no interval."""
    assert (
        verdict(interval(torch.ones(5, 1).numpy(), torch.ones(1).numpy()), NGRAMS) == "no verdict"
    )
    covered = 0
    for _ in range(1_000):
        effects, of_texts = (
            torch.randn(n, generator=GENERATOR) * size for n, size in ((5, of_draws), (100, 0.3))
        )
        noise = torch.randn(5, 100, generator=GENERATOR) * 0.3
        rows = (0.5 + effects[:, None] + of_texts + noise).double().numpy()
        found = interval(rows, torch.ones(100).numpy())
        covered += abs(found["mean"] - 0.5) <= found["margin"]
    assert 0.925 < covered / 1_000 < 0.985


@pytest.mark.parametrize(
    ("has_bfloat16", "d_model", "dtype"),
    [(True, 128, torch.bfloat16), (True, 64, torch.float32), (False, 128, torch.float32)],
)
def test_long_vectors_are_fine_tuned_in_bfloat16_on_cpus_that_have_it(
    few_steps, with_ngrams, monkeypatch, has_bfloat16: bool, d_model: int, dtype: torch.dtype
):
    monkeypatch.setattr(classification, "CPU_HAS_BFLOAT16", has_bfloat16)
    part = units(of_first_letter(40), of_first_letter(40).pool, 64)
    start = classifier(with_ngrams)
    dtypes = set()
    start.d_model = d_model  # only the choice of the precision reads it here
    start.output.register_forward_hook(lambda module, inputs, output: dtypes.add(output.dtype))
    fine_tuned(start, token_ids(part.texts, with_ngrams), part.labels, **RATES, n_steps=2, seed=0)
    assert dtypes == {dtype}
