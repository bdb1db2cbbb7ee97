import torch
from torch.nn import functional as F
from torch.testing import assert_close

from data.batch import IGNORED_LABEL
from tests.conftest import configs_for
from training.objective import MaskedObjective
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)
OBJECTIVE = MaskedObjective()


def gradients_of(configs, batches):
    """The gradients of a step with these batches, and its outcomes."""
    configs.network.zero_grad()
    counts = OBJECTIVE.counts(batches)
    outcomes = [configs.update.forward_backward(batch, counts) for batch in batches]
    return dense_gradients(configs), outcomes


def dense_gradients(configs):
    return [weight.grad.to_dense().clone() for weight in configs.network.parameters()]


def test_the_loss_counts_the_labels_that_are_not_ignored(corpus_file):
    configs = configs_for(corpus_file)
    (batch,) = configs.step.draw(STAGE)
    batch.labels[::3] = IGNORED_LABEL
    is_kept = batch.labels != IGNORED_LABEL
    labels = batch.labels[is_kept]
    logits = configs.network(batch.inputs)[batch.positions[is_kept]]

    sums = OBJECTIVE.outcome(configs.network, batch).sums

    assert OBJECTIVE.counts([batch])["n_labels"] == len(labels)
    assert torch.allclose(
        sums["loss_sum"], F.cross_entropy(logits, labels, reduction="sum")
    )
    assert sums["n_correct"] == (logits.argmax(-1) == labels).sum()


def test_gradient_accumulation_does_not_change_the_gradients(corpus_file):
    """The gradients of a step in four batches are those of the same windows in one batch."""
    configs = configs_for(corpus_file, training__grad_accum_steps=4)
    batches = configs.step.draw(STAGE)
    # the first batch ignores labels, so a mean of the means of the batches would differ
    batches[0].labels[1:] = IGNORED_LABEL
    joined = batches[0]._replace(
        inputs=torch.cat([batch.inputs for batch in batches]),
        positions=torch.cat(
            [128 * i + batch.positions for i, batch in enumerate(batches)]
        ),
        labels=torch.cat([batch.labels for batch in batches]),
    )

    apart, _ = gradients_of(configs, batches)
    together, _ = gradients_of(configs, [joined])

    assert_close(apart, together, rtol=1e-5, atol=1e-6)

    sums = configs.step(STAGE)
    assert sums["n_labels"] == 16 * round(0.15 * 32)  # of all four batches
    assert sums["grad_norm"] > 0


def test_gradients_are_clipped_as_pytorch_does_rows_of_tables_included(corpus_file):
    """Two batches look up the same rows, whose gradients must be added before the norm is taken."""
    keys = {"training__grad_accum_steps": 2, "training__grad_norm_clip": 1e-3}
    configs = configs_for(corpus_file, model__ngrams=2, **keys)
    configs.step(STAGE)  # or the table's gradient would be zero

    gradients, _ = gradients_of(configs, configs.step.draw(STAGE))
    copies = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]

    for copy, gradient in zip(copies, gradients, strict=True):
        copy.grad = gradient

    norm = torch.nn.utils.clip_grad_norm_(copies, 1e-3)  # changes `gradients`

    assert norm > 1e-3
    assert any(weight.grad.is_sparse for weight in configs.network.parameters())
    assert torch.allclose(configs.update.clip(), norm)

    assert_close(dense_gradients(configs), gradients, rtol=1e-4, atol=1e-9)
