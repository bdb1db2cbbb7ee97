import pytest
import torch
from torch import nn

import benchmarks.models  # noqa: F401, registers the architectures
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


@pytest.mark.parametrize(
    ("name", "peer"), [("bert", "BertForMaskedLM"), ("modernbert", "ModernBertForMaskedLM")]
)
def test_a_hugging_face_model_has_the_shape_that_is_asked_for_and_its_own_logits_at_the_positions(
    name, peer
):
    adapter, positions = built(f"hugging_face_{name}", KEYS), torch.tensor([44, 5])  # in any order
    model = adapter.model
    expected = model(input_ids=INPUTS).logits.flatten(0, 1)
    assert torch.allclose(adapter(INPUTS), expected, atol=1e-6)
    assert torch.allclose(adapter(INPUTS, positions), expected[positions], atol=1e-6)
    assert type(model).__name__ == peer
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (32, 2)
    assert (model.config.num_attention_heads, model.config.intermediate_size) == (4, 48)
    assert model.config._attn_implementation == "sdpa"
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.25}
    assert {
        module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding)
    } == {None}


def test_a_classifier_reads_modernbert_as_it_reads_folio():
    """All layers and the surprise of each token; texts in one batch get what they have alone."""
    classifier = Classifier(built("hugging_face_modernbert", KEYS), 3, TEXT).eval()
    assert classifier.output.in_features == POOLS * (3 * 32 + 1)
    texts = [INPUTS[0, :5], INPUTS[1], INPUTS[2, :9]]
    alone = torch.cat([scores_of(classifier, [text]) for text in texts])
    assert torch.allclose(scores_of(classifier, texts), alone, atol=1e-5)
