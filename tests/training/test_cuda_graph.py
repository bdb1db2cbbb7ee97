"""Recorded steps. Without a GPU a tape stands in for the CUDA graph: see `tests.training.tape`."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from configs.experiment import Configs
from planning.ladder import warmed_up
from tests import conftest
from tests.conftest import weights
from tests.training.tape import Tape
from training import cuda_graph
from training.cuda_graph import EAGER_STEPS, CudaGraphs, can_record, relative_difference, shape_of
from training.optimizers import set_learning_rate
from training.schedule import Stage
from training.step import Update

STAGE = Stage(1.0, 32, 0.15)
configs_for = partial(conftest.configs_for, model__n_layers=1)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@dataclass
class Recorded:
    """A training whose updates are recorded as on CUDA, and the lines that it reports."""

    configs: Configs
    graphs: CudaGraphs
    lines: list[str] = field(default_factory=list)

    def adjust(self, stage: Stage) -> None:
        """What the loop does before a step: record it if that is due."""
        clock, training_step = SimpleNamespace(stopped=nullcontext), self.configs.step
        trainer = SimpleNamespace(
            clock=clock, training_step=training_step, report=self.lines.append
        )
        self.graphs.adjust(trainer, stage, 1.0)

    def is_due(self, stage: Stage) -> bool:
        return self.graphs.is_due(self.configs.step, stage)


def recordable(configs: Configs) -> Recorded:
    """A step as it is on CUDA: its update will be recorded."""
    update = configs.update
    update.reading_synchronizes = True
    for module in configs.network.modules():
        if isinstance(module, torch.nn.EmbeddingBag):
            module.sparse = False
    configs.cuda_graphs = graphs = CudaGraphs(update)
    return Recorded(configs, graphs)


def ready_to_record(configs: Configs) -> Recorded:
    recorded = recordable(configs)
    for _ in range(EAGER_STEPS):
        step(configs, share=0.5)
    assert recorded.is_due(STAGE)
    return recorded


def step(*trainings: Configs, share: float, stage: Stage = STAGE) -> list[dict[str, torch.Tensor]]:
    """Take a step of each at a share of the learning rate. Returns their sums."""
    for configs in trainings:
        set_learning_rate(configs.step.update.optimizers, share)
    return [configs.step(stage) for configs in trainings]


def state_of(configs: Configs) -> list[Any]:
    """The weights of a training and all other state, whose tensors are bytes."""
    leaves = tree_leaves([weights(configs), configs.step.state_dict()])
    return [leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


@pytest.fixture
def on_tape(monkeypatch):
    """Records graphs on a tape, through the interface of CUDA graphs."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", Tape.recorded)
    monkeypatch.setattr(Tape, "pools", [])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


@pytest.mark.parametrize(
    "keys",
    [
        {"training__grad_accum_steps": 2, "masking__strategy": "adaptive"},
        {"training__optimizer": "adamw", "model__ngrams": 4, "objective__sop": True},
        {"training__stages": [{"until": 1.0, "seq_len": 32, "masking_prob": [0.2, 0.5, 0.9]}]},
    ],
)
def test_replayed_steps_train_like_eager_ones(corpus_file, on_tape, keys):
    """Through two lengths and back, or three masking rates in turn, with a learning rate that
    changes, bit for bit."""
    eager, replayed = (configs_for(corpus_file, **keys) for _ in range(2))
    recordable(eager)
    recorded = recordable(replayed)
    rows, n, n_replayed = eager.training.all_stages, EAGER_STEPS + 3, 0
    stages = (
        rows * n
        if "training__stages" in keys
        else [stage for stage in (*rows, rows[0]) for _ in range(n)]
    )
    for i, stage in enumerate(stages):
        before = state_of(replayed)
        recorded.adjust(stage)
        assert state_of(replayed) == before  # recording and checking train nothing
        sums, others = step(eager, replayed, share=1 / (1 + i), stage=stage)
        torch.testing.assert_close(others, sums, rtol=0, atol=0)
        assert torch.equal(weights(eager), weights(replayed))
        n_replayed += shape_of(replayed.step, stage) in recorded.graphs._recorded
    assert not recorded.lines
    # each rate has its own graph, and graphs of another length are dropped
    assert n_replayed == 3 * 3
    assert len(Tape.pools) == 3
    # A pool lives as long as one of its graphs, and one per graph would need more memory.
    assert len({id(pool) for pool in Tape.pools}) == (1 if "training__stages" in keys else 3)


def test_each_row_of_a_schedule_is_recorded_before_it_is_measured(corpus_file, on_tape):
    recorded = recordable(configs_for(corpus_file))
    rows = 0
    for step, (stage,) in warmed_up(recorded.configs, recorded.lines.append):
        assert shape_of(step, stage) in recorded.graphs._recorded
        rows += 1
    assert rows == len(recorded.configs.training.all_stages) > 1
    assert not recorded.lines


def test_loaded_step_counts_are_moved_to_the_device():
    """PyTorch leaves those of optimizers that are not fused where it loads them."""
    here, there = (torch.nn.Parameter(torch.zeros(2, device=device)) for device in ("cpu", "meta"))
    saved, loaded = torch.optim.NAdam([here]), torch.optim.NAdam([there])
    here.grad = torch.ones(2)
    saved.step()
    loaded.load_state_dict(saved.state_dict())
    assert loaded.state[there]["step"].device.type == "cpu"
    CudaGraphs(SimpleNamespace(device=there.device, optimizers=[loaded])).begin(None)
    assert {value.device.type for value in loaded.state[there].values()} == {"meta"}


def learning_rate_in_the_graph(monkeypatch, update: Update) -> None:
    """The graph repeats the learning rate that it was recorded with."""

    def optimize(is_finite: torch.Tensor) -> None:
        if isinstance(_get_current_dispatch_mode(), Tape):
            for group in (
                group for optimizer in update.optimizers for group in optimizer.param_groups
            ):
                group["lr"] = group["lr"].clone().fill_(1e-3)
        original(is_finite)

    original = update.optimize_if
    monkeypatch.setattr(update, "optimize_if", optimize)


def input_outside_the_static_buffer(monkeypatch, update: Update) -> None:
    """New batches are copied elsewhere, so the graph keeps reading the labels that it was recorded
    with."""
    monkeypatch.setattr(cuda_graph.Batch, "tensors", lambda batch: [batch.inputs, batch.positions])


def optimizer_state_created_while_recording(monkeypatch, update: Update) -> None:
    """Each replay creates the momenta again, as zeros."""
    for optimizer in update.optimizers:
        optimizer.state.clear()


@pytest.mark.parametrize(
    "fault",
    [
        learning_rate_in_the_graph,
        input_outside_the_static_buffer,
        optimizer_state_created_while_recording,
    ],
)
def test_a_wrong_graph_is_never_used(corpus_file, on_tape, monkeypatch, fault: Callable):
    eager, faulty = (configs_for(corpus_file) for _ in range(2))
    _, recorded = (ready_to_record(configs) for configs in (eager, faulty))
    with monkeypatch.context() as patch:
        fault(patch, faulty.step.update)
        if fault is optimizer_state_created_while_recording:
            optimizer_state_created_while_recording(patch, eager.step.update)
        recorded.adjust(STAGE)
    (line,) = recorded.lines
    assert "training without CUDA graphs: a replayed step differs from an eager one by" in line
    assert "\n" not in line
    eager.step.run_update = eager.step.update
    for _ in range(EAGER_STEPS + 1):
        assert not recorded.is_due(STAGE)
        for configs in (eager, faulty):
            configs.step(STAGE)
        assert torch.equal(weights(eager), weights(faulty))  # recording and failing changed nothing


def test_a_replayed_step_that_is_not_finite_is_skipped(corpus_file, on_tape):
    """The graph reads the weights from memory: nothing that it does depends on values in Python."""
    configs = configs_for(corpus_file)
    recorded, training_step = ready_to_record(configs), configs.step
    recorded.adjust(STAGE)
    bias = configs.network.decoder_bias
    good, before = bias.detach().clone(), weights(configs)
    bias.data.fill_(torch.nan)
    for skipped in (1, 2):
        assert all(total == 0 for total in training_step(STAGE).values())
        assert training_step.update.skipped_in_a_row == skipped
    bias.data.copy_(good)
    assert torch.equal(weights(configs), before)
    assert training_step(STAGE)["n_labels"] > 0
    assert training_step.update.skipped_in_a_row == 0
    assert weights(configs).isfinite().all()
    assert not recorded.lines


def test_the_losses_of_a_replayed_step_survive_the_next_one(corpus_file, on_tape):
    """A masker may keep them."""
    configs = configs_for(corpus_file)
    ready_to_record(configs).adjust(STAGE)
    _, (losses,) = configs.step.run_update(configs.step.draw(STAGE))
    before = losses.clone()
    _, (others,) = configs.step.run_update(configs.step.draw(STAGE))
    assert torch.equal(losses, before)
    assert not torch.equal(losses, others)


def test_an_update_changes_its_tensors_in_place(corpus_file):
    """A graph knows addresses only. Noam computes its learning rate in Python, so it is never
    recorded."""
    assert not can_record(configs_for(corpus_file, training__optimizer="noam").update)
    configs = configs_for(corpus_file)
    update = configs.step.update
    assert can_record(update)

    def addresses() -> list[int]:
        state = [
            value
            for each in update.optimizers
            for values in each.state.values()
            for value in values.values()
        ]
        return [
            tensor.data_ptr()
            for tensor in (*configs.network.parameters(), *state, update.skipped_in_a_row)
        ]

    configs.step(STAGE)
    before, addresses_before = weights(configs), addresses()
    configs.step(STAGE)
    assert not torch.equal(weights(configs), before)
    assert addresses() == addresses_before


def test_learning_rates_on_the_device_train_like_those_in_python(corpus_file):
    plain, on_device = (configs_for(corpus_file) for _ in range(2))
    recordable(on_device)
    for share in (1.0, 0.5, 0.0):
        step(plain, on_device, share=share)
        assert relative_difference(weights(plain), weights(on_device)) < 1e-5
        for one, other in zip(
            plain.step.update.optimizers, on_device.step.update.optimizers, strict=True
        ):
            # numbers, as saved
            assert str(one.state_dict()["param_groups"]) == str(other.state_dict()["param_groups"])


def test_the_relative_difference_is_relative_to_the_norm_of_the_first():
    assert relative_difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])) == 0
    assert relative_difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0])) == 0.2
    assert relative_difference(torch.zeros(2), torch.zeros(2)) == 0
    assert relative_difference(torch.tensor(0), torch.tensor(1)) > 1e9
    assert relative_difference(torch.ones(2), torch.tensor([1.0, torch.nan])) > 1e9


def noisy(recorded: Recorded, size: float, of_update: float = 0.0) -> None:
    """Kernels that add in varying order: every update leaves noise of this relative size in one
    optimizer state, and `of_update` in what it adds to a matrix."""
    update, generator = recorded.graphs.update, torch.Generator().manual_seed(0)
    matrix = recorded.configs.network.encoder.layers[0].attention.output.weight.data

    class Noisy:
        def __getattr__(self, name):
            return getattr(update, name)

        def __call__(self, batches):
            before = matrix.clone()
            outcome = update(batches)
            change = matrix - before
            matrix.add_(
                torch.randn(change.shape, generator=generator)
                * change.square().mean().sqrt()
                * of_update
            )
            state = next(iter(update.optimizers[0].state.values()))["exp_avg"]
            state.add_(torch.randn(state.shape, generator=generator) * state.abs().mean() * size)
            return outcome

    recorded.graphs.update = Noisy()


@pytest.mark.parametrize(
    ("size", "of_update", "fault", "accepted"),
    [
        # as Muon in bfloat16 makes of it, in a matrix that started at zero
        (1e-5, 1e-2, None, True),
        (1e-5, 1e-2, learning_rate_in_the_graph, False),
        (1e-5, 1e-2, input_outside_the_static_buffer, False),
        (1e-5, 0.5, None, False),
        (1.0, 0.0, None, False),
    ],
)
def test_noise_is_accepted_up_to_a_limit_and_hides_no_fault(
    corpus_file, on_tape, monkeypatch, size, of_update, fault: Callable | None, accepted
):
    configs = configs_for(corpus_file)
    recorded = ready_to_record(configs)
    noisy(recorded, size, of_update)
    set_learning_rate(configs.step.update.optimizers, 0.01)
    if fault:
        fault(monkeypatch, configs.step.update)
    recorded.adjust(STAGE)
    assert ["a replayed step differs from an eager one" in line for line in recorded.lines] == [
        True
    ] * (not accepted)
    assert bool(recorded.graphs._recorded) == accepted


def test_recording_is_tried_again_after_a_step_that_is_not_finite(corpus_file, on_tape):
    configs = configs_for(corpus_file)
    recorded = ready_to_record(configs)
    bias = configs.network.decoder_bias
    good = bias.detach().clone()
    bias.data.fill_(torch.nan)
    recorded.adjust(STAGE)
    assert not recorded.graphs._recorded
    bias.data.copy_(good)
    for _ in range(EAGER_STEPS):
        assert not recorded.is_due(STAGE)
        configs.step(STAGE)
    recorded.adjust(STAGE)
    assert recorded.graphs._recorded
    assert not recorded.lines


@pytest.mark.skipif(torch.cuda.is_available(), reason="recording works here")
def test_training_goes_on_if_nothing_can_be_recorded(corpus_file):
    plain, other = (configs_for(corpus_file) for _ in range(2))
    recorded = ready_to_record(other)
    recorded.adjust(STAGE)
    (line,) = recorded.lines
    assert line.startswith("training without CUDA graphs: ")
    assert not recorded.is_due(STAGE)
    other.step(STAGE)
    for _ in range(EAGER_STEPS + 1):
        step(plain, share=0.5)
    # the same windows and masks
    assert torch.allclose(weights(plain), weights(other), rtol=1e-3, atol=1e-5)


@needs_cuda
@pytest.mark.parametrize(
    "keys", [{}, {"training__grad_accum_steps": 2}, {"objective__sop": True}, {"model__ngrams": 4}]
)
def test_a_graph_trains_like_the_steps_that_it_was_recorded_from(corpus_file, keys):
    eager, replayed = (configs_for(corpus_file, device="cuda", **keys) for _ in range(2))
    recorded = recordable(replayed)
    for i, stage in enumerate(
        stage for stage in eager.training.all_stages for _ in range(EAGER_STEPS + 4)
    ):
        recorded.adjust(stage)
        sums, others = step(eager, replayed, share=1 / (1 + i), stage=stage)
        assert sums["n_labels"] == others["n_labels"]
        assert torch.allclose(sums["loss"], others["loss"], rtol=1e-3)
    assert not recorded.lines
    assert recorded.graphs._recorded
    assert torch.allclose(weights(eager), weights(replayed), rtol=1e-3, atol=1e-4)


@needs_cuda
def test_a_graph_draws_new_dropout_masks_at_each_replay(corpus_file):
    configs = configs_for(corpus_file, device="cuda", model__dropout=0.5)
    recorded = ready_to_record(configs)
    set_learning_rate(configs.step.update.optimizers, 0.0)
    recorded.adjust(STAGE)
    batches = configs.step.draw(STAGE)
    losses = {float(recorded.graphs(batches)[0]["loss"]) for _ in range(4)}
    assert len(losses) == 4


@needs_cuda
def test_training_goes_on_after_a_recording_that_failed(corpus_file, monkeypatch):
    configs = configs_for(corpus_file, device="cuda", model__dropout=0.1)
    recorded = ready_to_record(configs)
    with monkeypatch.context() as patched:
        patched.setattr(configs.step.update, "optimize_if", lambda is_finite: is_finite.item())
        recorded.adjust(STAGE)
    assert len(recorded.lines) == 1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    for _ in range(2):
        assert configs.step(STAGE)["loss"].isfinite()
