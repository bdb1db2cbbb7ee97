import torch
from torch.nn import functional as F

from data.masking import IGNORED_LABEL
from tests.conftest import configs_for, weights
from training.compilation import Compilation
from training.objective import masked_loss, n_labels
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)


def test_the_loss_counts_the_labels_that_are_not_ignored(corpus_file):
    configs = configs_for(corpus_file)
    (batch,) = configs.step.draw(STAGE)
    labels = batch.labels.clone()
    labels[::3] = IGNORED_LABEL
    batch = batch._replace(labels=labels)
    loss = masked_loss(configs.network, batch)
    kept = labels != IGNORED_LABEL
    logits = configs.network(batch.inputs)[batch.positions[kept]]
    assert n_labels(batch) == kept.sum()
    assert torch.allclose(loss.loss_sum, F.cross_entropy(logits, labels[kept], reduction="sum"))
    assert loss.n_correct == (logits.argmax(-1) == labels[kept]).sum()


def test_accumulation_changes_nothing_but_memory(corpus_file):
    """The gradient of a step in four batches is the gradient of the same windows in one."""
    together, apart = (configs_for(corpus_file, training__grad_accum_steps=n) for n in (1, 4))
    batches = apart.step.draw(STAGE)
    offsets = [512 // 4 * i for i in range(4)]
    joined = type(batches[0])(
        torch.cat([batch.inputs for batch in batches]),
        torch.cat([batch.positions + offset for batch, offset in zip(batches, offsets, strict=True)]),
        torch.cat([batch.labels for batch in batches]),
        torch.cat([batch.offsets for batch in batches]),
    )
    # One batch has fewer labels that count: a mean of means would weigh its labels more.
    for batch, offset in zip(batches[:1], offsets, strict=False):
        batch.labels[5:] = IGNORED_LABEL
        joined.labels[offset + 5 : offset + len(batch.labels)] = IGNORED_LABEL
    for batch in batches:
        apart.step.backward(batch, n_labels(joined))
    together.step.backward(joined, n_labels(joined))
    for one, many in zip(together.network.parameters(), apart.network.parameters(), strict=True):
        assert torch.allclose(one.grad, many.grad, atol=1e-6)


def test_a_step_counts_every_label_of_its_batches(corpus_file):
    sums = configs_for(corpus_file, training__grad_accum_steps=4).step(STAGE)
    assert sums.n_labels == 16 * round(0.15 * 32)
    assert sums.grad_norm > 0


def test_a_compiled_step_does_what_the_plain_one_does(corpus_file):
    plain, compiled = (configs_for(corpus_file) for _ in range(2))
    stages = plain.training.stage_rows
    before = weights(compiled)
    torch._dynamo.reset()
    counts = torch._dynamo.utils.counters["aot_autograd"]
    counts.clear()
    lines: list[str] = []
    Compilation(compiled.step).compile(stages, lines.append)
    kept = counts["autograd_cache_saved"] + counts["autograd_cache_hit"]
    assert kept == len(stages)  # all of it is there for the next run
    assert torch.equal(weights(compiled), before)  # compiling trains nothing and draws nothing
    for stage in [*stages, *stages]:
        (batch,) = plain.step.draw(stage)
        losses = [configs.step.backward(batch, n_labels(batch)) for configs in (plain, compiled)]
        assert torch.allclose(losses[0].loss_sum, losses[1].loss_sum, rtol=1e-5)
        assert losses[0].n_correct == losses[1].n_correct
    for one, other in zip(plain.network.parameters(), compiled.network.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)
