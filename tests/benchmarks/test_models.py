import pytest
import torch
from torch import nn

from data.tasks.task import TEXT
from tests.model.conftest import INPUTS, built
from trained.classifier import POOLS, Classifier, scores_of

KEYS = {
    "model.d_model": 32,
    "model.n_heads": 4,
    "model.n_layers": 2,
    "model.d_ff": 48,
    "model.dropout": 0.25,
}


def peer(name):
    return built(f"benchmarks/models.py:{name}", KEYS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bert", "BertForMaskedLM"), ("modernbert", "ModernBertForMaskedLM")],
)
def test_a_hugging_face_model_has_the_shape_that_is_asked_for_and_its_own_logits_at_the_positions(
    name, kind
):
    adapter = peer(name)
    model = adapter.model
    expected = model(input_ids=INPUTS).logits.flatten(0, 1)

    positions = torch.tensor([44, 5])  # in any order

    assert torch.allclose(adapter(INPUTS), expected, atol=1e-6)
    assert torch.allclose(adapter(INPUTS, positions), expected[positions], atol=1e-6)

    assert type(model).__name__ == kind
    assert model.config.hidden_size == 32
    assert model.config.num_hidden_layers == 2
    assert model.config.num_attention_heads == 4
    assert model.config.intermediate_size == 48
    assert model.config._attn_implementation == "sdpa"

    modules = list(model.modules())
    assert {module.p for module in modules if isinstance(module, nn.Dropout)} == {0.25}

    tables = [module for module in modules if isinstance(module, nn.Embedding)]
    assert {table.padding_idx for table in tables} == {None}


def test_a_classifier_reads_modernbert_as_it_reads_folio():
    """All layers and the surprise of each token; texts in one batch get what they have alone."""
    classifier = Classifier(peer("modernbert"), 3, TEXT).eval()
    assert classifier.output.in_features == POOLS * (3 * 32 + 1)

    texts = [INPUTS[0, :5], INPUTS[1], INPUTS[2, :9]]
    alone = torch.cat([scores_of(classifier, [text]) for text in texts])

    assert torch.allclose(scores_of(classifier, texts), alone, atol=1e-5)
