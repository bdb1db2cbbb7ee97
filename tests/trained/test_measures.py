import torch

from data.protocol import ValidationSet, protocol_masks
from data.vocabulary import Vocabulary
from tests.model.conftest import model_of
from trained import measures
from training.evaluation import masked_outcomes


def windows(n):
    return ValidationSet(torch.zeros(n, 256, dtype=torch.int64), protocol_masks(n))


def test_sweep_masks_have_their_rate_in_every_window():
    masks = measures.sweep_masks(windows(50), 0.3)
    assert set(masks.sum(1).tolist()) == {77}

    counts = measures.sweep_masks(windows(2_000), None).sum(1)
    assert 1 <= counts.min() < 10
    assert 245 < counts.max() <= 255
    assert torch.equal(measures.sweep_masks(windows(50), 0.3), masks)


def test_distance_to_the_nearest_visible_character():
    masked = torch.tensor([[1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1]]).bool()
    assert measures.distance_to_visible(masked).tolist() == [
        [2, 1, 0, 1, 2, 3],
        [0, 0, 0, 0, 0, 1],
    ]


def copier(n_tokens):
    """Predicts the character to the left of the masked one, with certainty; `[MASK]` at the start
    of a window."""

    def logits_of(inputs, positions):
        before = torch.cat([inputs[:, :1], inputs[:, :-1]], dim=1).flatten()[positions]
        return torch.nn.functional.one_hot(before, n_tokens) * 100.0

    return model_of(logits_of)


def test_the_measures_of_a_model_with_known_predictions():
    vocabulary = Vocabulary("abC \n")
    model = copier(vocabulary.n_tokens)
    texts = vocabulary.encode("aC" * 128 + "b " * 128).view(2, 256)
    masked = protocol_masks(2)
    outcomes = masked_outcomes(model, texts, masked, vocabulary.mask_token)

    tables = measures.breakdown(outcomes, ValidationSet(texts, masked), vocabulary)

    for table in tables.values():
        assert sum(row["n"] for row in table.values()) == 76

    by_class = tables["by_class"]

    assert by_class["newline"] == {"n": 0, "loss": None, "accuracy": None}
    assert by_class["capitals"]["n"] > 0
    # left neighbors differ
    assert {row["accuracy"] for row in by_class.values() if row["n"]} == {0.0}

    constant = ValidationSet(vocabulary.encode("b" * 512).view(2, 256), masked)
    single = measures.one_at_a_time(model, constant, vocabulary.mask_token)

    assert single["n"] == 2 * 32
    # wrong at the first character of each window, which has none on its left
    assert single["accuracy"] == 62 / 64

    rates = measures.sweep(model, constant, vocabulary.mask_token)
    assert rates["15%"]["accuracy"] > rates["50%"]["accuracy"] > 0.3


def test_span_masks_are_separate_spans_within_the_budget():
    spans = measures.span_masks(windows(50))

    assert set(spans.sum(1).tolist()) == {35}

    for row in spans.int().tolist():
        runs = "".join(map(str, row)).replace("0", " ").split()
        assert runs == ["11111"] * 7


def test_a_text_without_words_has_no_measure_of_whole_words():
    vocabulary = Vocabulary("-! ")
    numbers = ValidationSet(
        vocabulary.encode("-! -" * 64).view(1, 256), protocol_masks(1)
    )
    results = measures.hard_masks(copier(vocabulary.n_tokens), numbers, vocabulary)

    assert results["whole words"] == {"n": 0, "loss": None, "accuracy": None}
    assert results["spans of 5"]["n"] == 35
