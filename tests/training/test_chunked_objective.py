"""Head and loss in chunks of the masked positions."""

import pytest
import torch

from data.batch import IGNORED_LABEL, Batch
from model import MaskedLanguageModel, ModernEncoder
from tests.conftest import configs_for
from tests.distributed.steps import new_memory
from training.chunked_objective import LOGITS_AT_ONCE, ChunkedObjective
from training.objective import MaskedObjective, cross_entropy

N_TOKENS = 32_768
PLAIN = MaskedObjective()
CHUNKED = ChunkedObjective(cross_entropy, n_at_once=24)
SHAPE = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = MaskedLanguageModel(ModernEncoder(n_tokens=N_TOKENS, **SHAPE))
    for weight in model.parameters():  # zeros would hide gradients
        torch.nn.init.normal_(weight, std=0.1)

    return model


def batch_of(n_masked):
    """A batch of 8 windows of 64."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(N_TOKENS, (8, 64), generator=generator)
    columns = torch.rand(8, 64, generator=generator).argsort(1)[:, :n_masked]
    labels = tokens.gather(1, columns)
    labels[:3, 0] = IGNORED_LABEL
    return Batch(tokens, columns + 64 * torch.arange(8)[:, None], labels)


def backward(objective, model, batch):
    model.zero_grad()
    outcome = objective.outcome(model, batch)
    objective.normalized(outcome.sums, objective.counts([batch])).backward()
    return outcome.detached()


def test_the_gradients_and_the_losses_are_those_of_the_plain_loss(model):
    batch = batch_of(n_masked=19)  # 152 positions: the last chunk is shorter
    plain = backward(PLAIN, model, batch)
    expected = [weight.grad.clone() for weight in model.parameters()]
    chunked = backward(CHUNKED, model, batch)

    torch.testing.assert_close(chunked, plain, rtol=1e-5, atol=0)
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        assert gradient.norm() > 0
        assert (weight.grad - gradient).norm() <= 1e-6 * gradient.norm()


def test_its_memory_is_flat_in_the_number_of_masked_positions(model):
    def bytes_of(objective, n_masked):
        batch = batch_of(n_masked)
        return new_memory(lambda: backward(objective, model, batch))

    logits = 4 * N_TOKENS * 8  # bytes per masked position of each window
    few, many = (bytes_of(CHUNKED, n) for n in (6, 60))
    assert many - few < 0.02 * 54 * logits

    few, many = (bytes_of(PLAIN, n) for n in (6, 60))
    assert many - few > 54 * logits


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({}, MaskedObjective),
        ({"training__chars_per_step": 2**25}, ChunkedObjective),
        (
            {"training__chars_per_step": 2**25, "training__grad_accum_steps": 64},
            MaskedObjective,
        ),
        (
            {"training__chars_per_step": 2**25, "model__architecture": "labml_nn"},
            MaskedObjective,
        ),
    ],
)
def test_the_size_of_a_batch_decides_once(corpus_file, keys, kind):
    configs = configs_for(corpus_file, **keys)
    objective = configs.update.objective

    assert type(objective) is kind
    if kind is ChunkedObjective:
        assert objective.n_at_once * configs.model.n_tokens <= LOGITS_AT_ONCE
