"""The contract of batches: padding changes nothing, and a source of batches may be a user's own."""

from itertools import pairwise

import pytest
import torch

from data.batch import IGNORED_LABEL, Batch
from data.batch_contract import check_batch
from distributed.parallel import part_of
from tests.conftest import configs_for
from training.compilation import Compiled
from training.evaluation import masked_outcomes
from training.objective import MaskedObjective
from training.schedule import Stage
from training.step import TrainingStep

STAGE = Stage(1.0, 32, 0.15)
LENGTHS = [9, 32, 17, 4]
KEYS = {"model__ngrams": 4, "training__chars_per_step": 4 * 32}


class Texts:
    """A user's source: padded texts of different lengths, from an iterator of random numbers. One
    character of each text is masked, the last one in the texts of an even row."""

    def __init__(self, mask_token):
        self.mask_token = mask_token
        self.n_drawn = 0

    def draw(self, batch_size, seq_len, masking_prob, progress):
        generator = torch.Generator().manual_seed(self.n_drawn)
        self.n_drawn += 1
        tokens = torch.randint(8, (batch_size, seq_len), generator=generator)
        lengths = torch.tensor(LENGTHS[:batch_size])
        is_text = torch.arange(seq_len) < lengths[:, None]
        columns = torch.stack([torch.zeros_like(lengths), lengths - 1], dim=1)
        inputs = tokens.masked_fill(~is_text, 0).scatter(1, columns, self.mask_token)
        positions = columns + seq_len * torch.arange(batch_size)[:, None]
        return Batch(inputs, positions, tokens.gather(1, columns), attention_mask=is_text)

    def state_dict(self):
        return {"n_drawn": self.n_drawn}

    def load_state_dict(self, state):
        self.n_drawn = state["n_drawn"]


def own_step(corpus_file, **keys):
    """A training step on `Texts`, after two steps: at first, the layers are the identity."""
    configs = configs_for(corpus_file, **KEYS, **keys)
    source = Texts(configs.data.vocabulary.mask_token)
    step = TrainingStep(source, configs.update, chars_per_step=4 * 32)
    for _ in range(2):
        step(STAGE)
    return step


def gradients_of(step, batches, objective):
    """The loss of a step and its gradients."""
    model = step.update.model
    model.zero_grad()
    counts = objective.counts(batches)
    losses = [objective.normalized(objective.outcome(model, b).sums, counts) for b in batches]
    loss = torch.stack(losses).sum()
    loss.backward()
    return [loss.detach(), *(weight.grad.to_dense().clone() for weight in model.parameters())]


def alone(batch):
    """The texts of a padded batch, each in a batch of its own without padding."""
    texts = []
    for row, length in enumerate(batch.attention_mask.sum(1).tolist()):
        text = part_of(batch, slice(row, row + 1))
        texts.append(text._replace(inputs=text.inputs[:, :length], attention_mask=None))
    return texts


def flat(batch):
    """The same positions in another order, as `[n]`."""
    order = torch.randperm(batch.positions.numel(), generator=torch.Generator().manual_seed(0))
    positions = batch.positions.flatten()[order]
    return batch._replace(positions=positions, labels=batch.labels.flatten()[order])


def test_a_padded_batch_has_the_loss_and_the_gradients_of_the_texts_alone(corpus_file):
    step = own_step(corpus_file)
    (padded,) = step.draw(STAGE)
    objective = MaskedObjective()
    expected = gradients_of(step, alone(padded), objective)
    for batch in (padded, flat(padded)):
        for one, other in zip(expected, gradients_of(step, [batch], objective), strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    without_mask = gradients_of(step, [padded._replace(attention_mask=None)], objective)
    assert not torch.allclose(without_mask[0], expected[0], rtol=1e-4)


def test_a_compiled_step_respects_the_padding(two_threads, corpus_file):
    step = own_step(corpus_file)
    compiled = Compiled(MaskedObjective())
    for batch in step.draw(STAGE) + step.draw(STAGE)[:3]:
        expected = gradients_of(step, [batch], MaskedObjective())
        for one, other in zip(expected, gradients_of(step, [batch], compiled), strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_evaluation_respects_the_padding(corpus_file):
    step = own_step(corpus_file)
    (batch,) = step.draw(STAGE)
    masked = torch.zeros_like(batch.attention_mask)
    masked.flatten()[batch.positions] = True
    tokens = batch.inputs.flatten().index_put((batch.positions,), batch.labels).view(4, 32)
    measure = [step.update.model, tokens, masked, step.source.mask_token]
    losses, _ = masked_outcomes(*measure, attention_mask=batch.attention_mask)
    expected = MaskedObjective().outcome(step.update.model, batch).losses.flatten()
    assert torch.allclose(losses.float(), expected, atol=1e-5)


def test_the_batches_of_a_users_source_train_and_resume_exactly(corpus_file):
    step = own_step(corpus_file)
    model = step.update.model
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    step_state = torch.utils._pytree.tree_map_only(
        torch.Tensor, torch.Tensor.clone, step.state_dict()
    )
    losses = [step(STAGE)["loss"] for _ in range(3)]
    assert losses[-1].isfinite()

    resumed = own_step(corpus_file)
    resumed.update.model.load_state_dict(state)
    resumed.load_state_dict(step_state)
    assert [resumed(STAGE)["loss"] for _ in range(3)] == losses
    assert all(map(torch.equal, model.parameters(), resumed.update.model.parameters()))


def test_processes_divide_a_batch_into_parts(corpus_file):
    (batch,) = own_step(corpus_file).draw(STAGE)
    batch = batch._replace(extras={"row": torch.arange(4)})
    for each in (batch, flat(batch)):
        for begin, end in pairwise([0, 1, 3, 4]):
            part = part_of(each, slice(begin, end))
            assert part.extras["row"].tolist() == list(range(begin, end))
            assert part.attention_mask.shape == part.inputs.shape == (end - begin, 32)
            assert part.labels.numel() == 2 * (end - begin)
            assert (part.inputs.flatten()[part.positions] == batch.inputs[0, 0]).all()  # [MASK]


def test_a_users_loss_sees_labels_that_count(corpus_file):
    """It is given no ignored label, and its value there does not count."""

    def squared(logits, labels):
        return (1 - logits.softmax(-1).gather(1, labels[:, None]).squeeze(1)).square()

    configs = configs_for(corpus_file)
    (batch,) = configs.step.draw(STAGE)
    labels = batch.labels.clone()
    labels[:, ::2] = IGNORED_LABEL
    outcome = MaskedObjective(squared).outcome(configs.network, batch._replace(labels=labels))
    logits = configs.network(batch.inputs, batch.positions)
    expected = squared(logits.flatten(0, 1), batch.labels.flatten()).view(labels.shape)
    assert torch.allclose(outcome.losses[:, 1::2], expected[:, 1::2])
    assert (outcome.losses[:, ::2] == 0).all()
    assert torch.equal(outcome.sums["loss_sum"], outcome.losses.sum())


GOOD = Batch(
    inputs=torch.zeros(2, 8, dtype=torch.int64),
    positions=torch.tensor([[1, 6], [9, 15]]),
    labels=torch.tensor([[3, 4], [5, IGNORED_LABEL]]),
    attention_mask=torch.ones(2, 8, dtype=torch.bool),
    extras={"segments": torch.zeros(2, 8)},
)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"inputs": torch.zeros(2, 9, dtype=torch.int64)}, "inputs"),
        ({"inputs": torch.full((2, 8), 30)}, "inputs"),
        ({"positions": torch.tensor([[1, 9], [2, 15]])}, "row i"),
        ({"positions": torch.tensor([[1, 6], [9, 16]])}, "positions"),
        ({"positions": torch.zeros(1, 2, 2, dtype=torch.int64)}, "positions"),
        ({"labels": torch.tensor([3, 4, 5, 6])}, "labels"),
        ({"labels": torch.tensor([[3, 4], [5, 30]])}, "labels"),
        ({"labels": torch.zeros(2, 2)}, "labels"),
        ({"attention_mask": torch.ones(2, 8)}, "attention_mask"),
        ({"attention_mask": torch.ones(8, dtype=torch.bool)}, "attention_mask"),
        ({"extras": {"segments": torch.zeros(8)}}, "segments"),
    ],
)
def test_a_batch_that_breaks_the_contract_is_refused_in_one_line(changed, named):
    check_batch(GOOD, batch_size=2, seq_len=8, n_tokens=30)
    with pytest.raises(ValueError, match=f"^[^\n]*{named}[^\n]*$"):
        check_batch(GOOD._replace(**changed), batch_size=2, seq_len=8, n_tokens=30)
