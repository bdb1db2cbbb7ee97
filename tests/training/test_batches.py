"""The contract of batches: padding changes nothing, and a source of batches may be a user's own."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from data.batch import IGNORED_LABEL, Batch
from data.batch_contract import check_batch
from distributed.parallel import part_of
from tests.conftest import configs_for, one_line, written
from training.compilation import Compiled, without_side_effects
from training.objective import MaskedObjective
from training.schedule import Stage
from training.step import TrainingStep

STAGE = Stage(1.0, 32, 0.15)
OBJECTIVE = MaskedObjective()
LENGTHS = torch.tensor([9, 32, 17, 4])


class Texts:
    """A user's source: four padded texts, from an iterator of random numbers. The first and the last
    character of each text are masked."""

    def __init__(self, mask_token):
        self.mask_token = mask_token
        self.n_drawn = 0

    def draw(self, batch_size, seq_len, masking_prob, progress):
        generator = torch.Generator().manual_seed(self.n_drawn)
        self.n_drawn += 1

        tokens = torch.randint(8, (batch_size, seq_len), generator=generator)
        is_text = torch.arange(seq_len) < LENGTHS[:, None]
        columns = torch.stack([torch.zeros_like(LENGTHS), LENGTHS - 1], dim=1)
        inputs = tokens.masked_fill(~is_text, 0).scatter(1, columns, self.mask_token)
        positions = columns + seq_len * torch.arange(batch_size)[:, None]
        return Batch(
            inputs, positions, tokens.gather(1, columns), attention_mask=is_text
        )

    def state_dict(self):
        return {"n_drawn": self.n_drawn}

    def load_state_dict(self, state):
        self.n_drawn = state["n_drawn"]


@pytest.fixture
def step(corpus_file):
    return own_step(corpus_file)


@pytest.fixture
def padded(step):
    (batch,) = step.draw(STAGE)
    return batch


def own_step(corpus_file):
    """A training step on `Texts`, after two steps: at first, the layers are the identity."""
    configs = configs_for(corpus_file, model__n_layers=1, model__ngrams=4)
    source = Texts(configs.data.vocabulary.mask_token)
    step = TrainingStep(source, configs.update, chars_per_step=4 * 32)
    for _ in range(2):
        step(STAGE)

    return step


def gradients_of(step, batches, objective=OBJECTIVE):
    """The loss of a step and its gradients."""
    model = step.update.model
    model.zero_grad()
    counts = objective.counts(batches)
    losses = [
        objective.normalized(objective.outcome(model, b).sums, counts) for b in batches
    ]
    loss = torch.stack(losses).sum()
    loss.backward()
    return [
        loss.detach(),
        *(weight.grad.to_dense().clone() for weight in model.parameters()),
    ]


def alone(batch):
    """The texts of a padded batch, each in a batch of its own without padding."""
    texts = []
    for row, length in enumerate(LENGTHS.tolist()):
        text = part_of(batch, slice(row, row + 1))
        texts.append(text._replace(inputs=text.inputs[:, :length], attention_mask=None))

    return texts


def flat(batch):
    """The same positions in another order, as `[n]`."""
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    positions = batch.positions.flatten()[order]
    return batch._replace(positions=positions, labels=batch.labels.flatten()[order])


def test_a_padded_batch_has_the_loss_and_the_gradients_of_the_texts_alone(step, padded):
    expected = gradients_of(step, alone(padded))
    for batch in (padded, flat(padded)):
        assert_close(gradients_of(step, [batch]), expected, rtol=1e-4, atol=1e-6)

    without_mask = gradients_of(step, [padded._replace(attention_mask=None)])
    assert not torch.allclose(without_mask[0], expected[0], rtol=1e-4)


def test_a_compiled_step_respects_the_padding(step, padded, monkeypatch):
    """PyTorch traces a mask like any other input, so nothing that generates code is needed."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()
    compiled = Compiled(OBJECTIVE)

    for batch in (padded, *step.draw(STAGE)):
        expected = gradients_of(step, [batch])
        assert_close(
            gradients_of(step, [batch], compiled), expected, rtol=1e-4, atol=1e-5
        )


def test_a_source_that_changes_its_state_in_place_draws_the_same_after_a_measurement(
    step,
):
    state = {"drawn": []}

    class InPlace(Texts):
        def draw(self, *arguments):
            state["drawn"].append(len(state["drawn"]))
            return super().draw(*arguments)

        def state_dict(self):
            return state

        def load_state_dict(self, loaded):
            state.update(loaded)

    step.source = InPlace(step.source.mask_token)
    with without_side_effects(step):
        step.draw(STAGE)

    assert state == {"drawn": []}


def test_the_batches_of_a_users_source_train_and_resume_exactly(corpus_file, step):
    model = step.update.model
    saved = deepcopy((model.state_dict(), step.state_dict()))
    losses = [step(STAGE)["loss"] for _ in range(3)]

    assert losses[-1].isfinite()

    resumed = own_step(corpus_file)
    resumed.update.model.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])

    assert [resumed(STAGE)["loss"] for _ in range(3)] == losses
    assert all(map(torch.equal, model.parameters(), resumed.update.model.parameters()))


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 3), (3, 4)])
def test_processes_divide_a_batch_into_parts(padded, begin, end):
    batch = padded._replace(extras={"row": torch.arange(4)})
    for each in (batch, flat(batch)):
        part = part_of(each, slice(begin, end))
        assert part.extras["row"].tolist() == list(range(begin, end))
        assert part.attention_mask.shape == part.inputs.shape == (end - begin, 32)
        assert part.labels.numel() == 2 * (end - begin)
        # [MASK]
        assert (part.inputs.flatten()[part.positions] == batch.inputs[0, 0]).all()


def test_a_users_loss_sees_labels_that_count(corpus_file):
    """It is given no ignored label, and its value there does not count."""

    def squared(logits, labels):
        return (1 - logits.softmax(-1).gather(1, labels[:, None]).squeeze(1)).square()

    configs = configs_for(corpus_file)
    (batch,) = configs.step.draw(STAGE)
    logits = configs.network(batch.inputs, batch.positions)
    expected = squared(logits.flatten(0, 1), batch.labels.flatten()).view(
        batch.labels.shape
    )

    is_ignored = torch.arange(batch.labels.shape[1]) % 2 == 0
    labels = batch.labels.masked_fill(is_ignored, IGNORED_LABEL)
    outcome = MaskedObjective(squared).outcome(
        configs.network, batch._replace(labels=labels)
    )

    assert torch.allclose(outcome.losses, expected.masked_fill(is_ignored, 0))
    assert torch.equal(outcome.sums["loss_sum"], outcome.losses.sum())


ZEROS = torch.zeros(2, 8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", ZEROS[:, :7]),
        ("inputs", ZEROS + 30),
        ("positions", torch.tensor([[1, 9], [2, 15]])),
        ("positions", torch.tensor([[1, 6], [9, 16]])),
        ("positions", ZEROS.view(1, 8, 2)),
        ("labels", torch.tensor([3, 4, 5, 6])),
        ("labels", torch.tensor([[3, 4], [5, 30]])),
        ("labels", torch.zeros(2, 2)),
        ("attention_mask", torch.ones(2, 8)),
        ("attention_mask", torch.ones(8, dtype=torch.bool)),
        ("extras", {"segments": torch.zeros(8)}),
    ],
)
def test_a_batch_that_breaks_the_contract_is_refused_in_one_line(name, value):
    good = Batch(
        inputs=ZEROS,
        positions=torch.tensor([[1, 6], [9, 15]]),
        labels=torch.tensor([[3, 4], [5, IGNORED_LABEL]]),
        attention_mask=ZEROS == 0,
        extras={"segments": ZEROS},
    )
    check_batch(good, batch_size=2, seq_len=8, n_tokens=30)

    with one_line(ValueError, name):
        check_batch(
            good._replace(**{name: value}), batch_size=2, seq_len=8, n_tokens=30
        )


def test_padding_takes_no_labels_from_a_run_on_documents(tmp_path, train):
    """Short documents leave a third of each window empty."""
    rows = "".join(f"{number:021}\n" for number in range(2_000))
    trained = train(
        data__corpus=written(tmp_path / "rows.txt", rows),
        data__documents="lines",
        training__stages=[{"until": 1.0, "seq_len": 32}],
        training__max_steps=4,
    )

    row = trained.callbacks.rows[-1]
    assert row.get("ignored_labels", 0) < 0.01
