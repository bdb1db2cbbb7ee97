import torch
from torch.nn import functional as F

from data.batch import IGNORED_LABEL
from tests.conftest import configs_for
from training.objective import MaskedObjective
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)
OBJECTIVE = MaskedObjective()


def test_the_loss_counts_the_labels_that_are_not_ignored(corpus_file):
    configs = configs_for(corpus_file)
    (batch,) = configs.step.draw(STAGE)
    labels = batch.labels.clone()
    labels[::3] = IGNORED_LABEL
    batch = batch._replace(labels=labels)
    outcome = OBJECTIVE.outcome(configs.network, batch)
    kept = labels != IGNORED_LABEL
    logits = configs.network(batch.inputs)[batch.positions[kept]]
    assert OBJECTIVE.counts([batch])["n_labels"] == kept.sum()
    assert torch.allclose(
        outcome.sums["loss_sum"], F.cross_entropy(logits, labels[kept], reduction="sum")
    )
    assert outcome.sums["n_correct"] == (logits.argmax(-1) == labels[kept]).sum()


def test_positions_per_window_change_neither_losses_nor_gradients(corpus_file):
    configs = configs_for(corpus_file, model__ngrams=2)
    configs.step(STAGE)  # or the outputs of the layers would be zero
    (batch,) = configs.step.draw(STAGE)
    results = []
    in_any_order = batch._replace(
        positions=batch.positions.flatten(), labels=batch.labels.flatten()
    )
    for each in (batch, in_any_order):
        outcome = OBJECTIVE.outcome(configs.network, each)
        assert outcome.losses.shape == each.positions.shape
        outcome.sums["loss_sum"].backward()
        gradients = [p.grad.to_dense() for p in configs.network.parameters()]
        results.append([outcome.losses.detach().flatten(), *gradients])
        configs.network.zero_grad()
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_gradient_accumulation_does_not_change_the_gradients(corpus_file):
    """The gradients of a step in four batches are those of the same windows in one batch."""
    together, apart = (configs_for(corpus_file, training__grad_accum_steps=n) for n in (1, 4))
    batches = apart.step.draw(STAGE)
    offsets = [512 // 4 * i for i in range(4)]
    joined = type(batches[0])(
        torch.cat([batch.inputs for batch in batches]),
        torch.cat(
            [batch.positions + offset for batch, offset in zip(batches, offsets, strict=True)]
        ),
        torch.cat([batch.labels for batch in batches]),
        torch.cat([batch.offsets for batch in batches]),
    )
    # The first batch ignores labels, so a mean of the means of the batches would differ.
    for batch in batches[:1]:
        batch.labels[1:] = IGNORED_LABEL
        joined.labels[1 : len(batch.labels)] = IGNORED_LABEL
    for batch in batches:
        apart.step.update.forward_backward(batch, OBJECTIVE.counts(batches))
    together.step.update.forward_backward(joined, OBJECTIVE.counts([joined]))
    for one, many in zip(together.network.parameters(), apart.network.parameters(), strict=True):
        assert torch.allclose(one.grad, many.grad, atol=1e-6)
    sums = apart.step(STAGE)
    assert sums["n_labels"] == 16 * round(0.15 * 32)  # of all four batches
    assert sums["grad_norm"] > 0


def test_gradients_are_clipped_as_pytorch_does_rows_of_tables_included(corpus_file):
    """Two batches look up the same rows, whose gradients must be added before the norm is taken."""
    configs = configs_for(
        corpus_file, model__ngrams=2, training__grad_accum_steps=2, training__grad_norm_clip=1e-3
    )
    configs.step(STAGE)  # or the table's gradient would be zero
    batches = configs.step.draw(STAGE)
    for batch in batches:
        configs.step.update.forward_backward(batch, OBJECTIVE.counts(batches))
    weights = list(configs.network.parameters())
    assert any(weight.grad.is_sparse for weight in weights)
    copies = [torch.nn.Parameter(torch.zeros_like(weight)) for weight in weights]
    for copy, weight in zip(copies, weights, strict=True):
        copy.grad = weight.grad.to_dense().clone()
    expected = torch.nn.utils.clip_grad_norm_(copies, 1e-3)
    assert expected > 1e-3
    assert torch.allclose(configs.step.update.clip(), expected)
    for copy, weight in zip(copies, weights, strict=True):
        assert torch.allclose(weight.grad.to_dense(), copy.grad, rtol=1e-4, atol=1e-9)
