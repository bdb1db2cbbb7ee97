"""Causal objectives: nothing is seen of the later text, and the masked objective follows."""

import pytest
import torch

from configs.keys import ConfigError
from data.causal_windows import CAUSAL
from tests.conftest import configs_for
from training.schedule import Stage

CAUSAL_KEYS = {"model__ngrams": 0, "objective__causal_until": 0.25}


def batches_at(configs, *shares):
    """Whether a batch is causal, at each share of the budget."""
    draws = [configs.source.draw(4, 32, 0.15, share) for share in shares]
    return [CAUSAL in batch.extras for batch in draws]


def test_causal_predictions_do_not_depend_on_later_characters(text_file):
    torch.manual_seed(0)
    network = configs_for(text_file, **CAUSAL_KEYS).network.eval()
    for weight in network.parameters():  # branches end with zeros
        torch.nn.init.normal_(weight, std=0.2)
    n_tokens = network.encoder.embedding.num_embeddings
    tokens = torch.randint(n_tokens, (2, 16))
    changed = tokens.clone()
    changed[:, 7:] = (tokens[:, 7:] + 1) % n_tokens

    logits = network.forward_causal(tokens)
    changed_logits = network.forward_causal(changed)

    # the logits at i are those of character i + 1
    torch.testing.assert_close(changed_logits[:, :7], logits[:, :7])
    assert (changed_logits[:, 7:] - logits[:, 7:]).abs().amax(-1).min() > 1e-3
    # the masked objective sees both sides
    assert not torch.allclose(network(tokens)[0], network(changed)[0])


def test_the_first_quarter_of_the_batches_is_causal(text_file):
    configs = configs_for(text_file, **CAUSAL_KEYS)

    assert batches_at(configs, 0.0, 0.249, 0.25, 1.0) == [True, True, False, False]

    batch = configs.source.draw(4, 32, 0.15, 0.0)
    text = configs.data.training_ids
    for row in range(4):
        window = text[batch.offsets[row]]
        assert torch.equal(batch.inputs[row], window)
        assert torch.equal(batch.labels[row], window[1:])


def test_a_share_of_the_batches_is_causal(text_file):
    keys = {"objective__causal_until": 1.0, "objective__causal_share": 0.25}
    configs = configs_for(text_file, model__ngrams=0, **keys)

    assert batches_at(configs, *[0.5] * 8) == [False, False, False, True] * 2


def test_a_shifted_model_reads_the_vector_before_a_masked_character(text_file):
    configs = configs_for(text_file, model__ngrams=0, objective__shifted=True)
    network = configs.network.eval()
    tokens = torch.randint(20, (2, 16))
    vectors = network.encoder(tokens).flatten(0, 1)

    logits = network(tokens, torch.tensor([[5, 0], [16, 17]]))

    expected = network.predict(vectors[[4, 0, 16, 16]]).view(2, 2, -1)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(network(tokens)[5], expected[0, 0])


@pytest.mark.parametrize("keys", [{"model__ngrams": 2}, {"objective__nsp": True}])
def test_what_does_not_fit_is_refused(text_file, keys):
    with pytest.raises(ConfigError, match=r"objective\.causal_until"):
        _ = configs_for(text_file, **CAUSAL_KEYS | keys).network


def test_the_loss_falls_in_both_kinds_of_batches(text_file):
    configs = configs_for(text_file, **CAUSAL_KEYS)
    losses = []
    for step in range(60):
        progress = 0.0 if step % 2 else 0.5
        losses.append(configs.step(Stage(1.0, 32, 0.15), progress)["loss"].item())

    for kind in (losses[::2], losses[1::2]):
        assert sum(kind[-5:]) < sum(kind[:5]) - 0.5
