"""Recorded steps. Without a GPU a tape stands in for the CUDA graph: see `tests.training.tape`."""

from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planning.ladder import warmed_up
from tests import conftest
from tests.conftest import slow, weights
from tests.training.tape import Tape
from tests.training.test_batches import Texts
from training.cuda_graph import EAGER_STEPS, MOST_SHAPES, CudaGraphs, can_record
from training.optimizers import set_learning_rate
from training.recorded_draws import RecordedDraws, generators_of
from training.schedule import Stage
from training.step import TrainingStep

STAGE = Stage(1.0, 32, 0.15)
configs_for = partial(conftest.configs_for, model__n_layers=1)
N_STEPS = EAGER_STEPS + 3
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


class Eager(CudaGraphs):
    """Never records, and has its learning rates on the device, too."""

    def __call__(self, batches):
        with self._rates_on_device():
            return self.update(batches)


def recordable(configs, kind=CudaGraphs):
    """Let the updates of a training be recorded, as on CUDA. Returns the lines that it reports."""
    update = configs.update
    update.reading_synchronizes = True

    for module in configs.network.modules():
        if isinstance(module, torch.nn.EmbeddingBag):
            module.sparse = False

    lines = []
    configs.step.run_update = kind(update, lines.append)
    return lines


def both(corpus_file, **keys):
    """A training whose steps stay eager, and one whose steps are recorded."""
    eager = configs_for(corpus_file, **keys)
    replayed = configs_for(corpus_file, **keys)
    recordable(eager, Eager)
    return eager, replayed, recordable(replayed)


def is_recorded(configs):
    return bool(configs.step.run_update._recorded)


def ready_to_record(configs):
    """Take the eager steps; the next one will be recorded."""
    lines = recordable(configs)
    for _ in range(EAGER_STEPS):
        step(configs, share=0.5)

    assert not is_recorded(configs)

    return lines


def step(*trainings, share, stage=STAGE):
    """Take a step of each at a share of the learning rate. Returns their sums."""
    for configs in trainings:
        set_learning_rate(configs.update.optimizers, share)
    return [configs.step(stage) for configs in trainings]


def state_of(configs):
    """The weights of a training and all other state, whose tensors are bytes."""
    leaves = tree_leaves([weights(configs), configs.step.state_dict()])
    return [
        leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]


@pytest.fixture
def on_tape(monkeypatch):
    """Records graphs on a tape, through the interface of CUDA graphs."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", Tape.recorded)
    monkeypatch.setattr(Tape, "pools", [])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    replays = []
    replay = Tape.replay
    monkeypatch.setattr(
        Tape, "replay", lambda tape: (replays.append(tape), replay(tape))
    )
    return replays


RATES = {
    "training__stages": [{"until": 1.0, "seq_len": 32, "masking_prob": [0.2, 0.5, 0.9]}]
}


@pytest.mark.parametrize(
    "keys",
    [
        {"training__optimizer": "adamw", "model__ngrams": 4, "objective__sop": True},
        *slow(
            {"training__grad_accum_steps": 2, "masking__strategy": "adaptive"}, RATES
        ),
    ],
)
def test_replayed_steps_train_like_eager_ones(corpus_file, on_tape, keys):
    """Through two lengths and back, or three masking rates in turn, with a learning rate that
    changes, bit for bit: weights, optimizer states, random numbers, and what the source learns."""
    eager, replayed, lines = both(corpus_file, **keys)
    rows = eager.training.all_stages
    stages = rows * N_STEPS

    if keys is not RATES:
        stages = [rows[0]] * N_STEPS + [rows[1]] * N_STEPS + [rows[0]] * N_STEPS

    for i, stage in enumerate(stages):
        sums, others = step(eager, replayed, share=1 / (1 + i), stage=stage)
        torch.testing.assert_close(others, sums, rtol=0, atol=0)
        assert state_of(eager) == state_of(replayed)

    assert not lines
    # each rate has its own graph, and graphs of another length are dropped
    assert len(on_tape) == 3 * 3
    assert len(Tape.pools) == 3
    # A pool lives as long as one of its graphs, and one per graph would need more memory.
    assert len({id(pool) for pool in Tape.pools}) == (1 if keys is RATES else 3)


def test_a_users_batches_are_replayed_with_their_masks(corpus_file, on_tape):
    losses = []
    for kind in (Eager, CudaGraphs):
        configs = configs_for(corpus_file, model__ngrams=4)
        lines = recordable(configs, kind)
        source = Texts(configs.data.vocabulary.mask_token)
        training_step = TrainingStep(
            source,
            configs.update,
            chars_per_step=4 * 32,
        )
        training_step.run_update = configs.step.run_update
        losses.append([float(training_step(STAGE)["loss"]) for _ in range(N_STEPS)])

        assert not lines

    assert losses[0] == losses[1]
    assert len(on_tape) == 3


def test_batches_whose_shapes_vary_are_not_recorded(corpus_file, on_tape):
    configs = configs_for(corpus_file, masking__strategy="labml_nn")
    lines = recordable(configs)
    for _ in range(4 * MOST_SHAPES):
        configs.step(STAGE)

    assert lines == ["training without CUDA graphs: the shapes of the batches vary"]


def test_recording_is_no_training_time(corpus_file, on_tape):
    configs = configs_for(corpus_file)
    ready_to_record(configs)
    pauses = []
    clock = SimpleNamespace(
        stopped=lambda: pauses.append(is_recorded(configs)) or nullcontext()
    )
    trainer = SimpleNamespace(clock=clock, report=print, training_step=configs.step)
    configs.step.run_update.begin(trainer)

    for _ in range(2):
        configs.step(STAGE)

    assert pauses == [False]  # not recorded yet
    assert is_recorded(configs)


def test_each_row_of_a_schedule_is_recorded_before_it_is_measured(
    corpus_file, on_tape, monkeypatch
):
    configs = configs_for(corpus_file)
    recordable(configs)
    monkeypatch.setattr("planning.ladder.cuda_graphs", lambda c: c.step.run_update)
    lines = []

    for n_rows, _ in enumerate(warmed_up(configs, lines.append), start=1):
        assert is_recorded(configs)
        assert len(Tape.pools) == n_rows

    assert n_rows == len(configs.training.all_stages) > 1
    assert not lines


def test_loaded_step_counts_are_moved_to_the_device():
    """PyTorch leaves those of optimizers that are not fused where it loads them."""
    here = torch.nn.Parameter(torch.zeros(2))
    there = torch.nn.Parameter(torch.zeros(2, device="meta"))
    saved = torch.optim.NAdam([here])
    loaded = torch.optim.NAdam([there])
    here.grad = torch.ones(2)
    saved.step()

    loaded.load_state_dict(saved.state_dict())

    assert loaded.state[there]["step"].device.type == "cpu"

    trainer = SimpleNamespace(
        clock=SimpleNamespace(stopped=nullcontext),
        report=print,
        training_step=SimpleNamespace(),
    )
    CudaGraphs(SimpleNamespace(device=there.device, optimizers=[loaded])).begin(trainer)

    assert {value.device.type for value in loaded.state[there].values()} == {"meta"}


def test_a_state_that_is_created_while_recording_is_found(corpus_file, on_tape):
    """Each replay would create the momenta again, as zeros. Failing changes nothing."""
    eager, faulty, lines = both(corpus_file)
    for _ in range(EAGER_STEPS):
        step(eager, faulty, share=0.5)

    for optimizer in eager.update.optimizers + faulty.update.optimizers:
        optimizer.state.clear()

    for _ in range(2):
        step(eager, faulty, share=0.5)
        assert torch.equal(weights(eager), weights(faulty))

    assert lines == ["training without CUDA graphs: an optimizer replaces its state"]
    assert not on_tape


def test_a_replayed_step_that_is_not_finite_is_skipped(corpus_file, on_tape):
    """The graph reads the weights from memory: nothing that it does depends on values in Python."""
    configs = configs_for(corpus_file)
    lines = ready_to_record(configs)
    configs.step(STAGE)

    assert is_recorded(configs)

    update = configs.update
    before = weights(configs)

    with torch.no_grad():
        good = configs.network.decoder_bias.clone()
        configs.network.decoder_bias.fill_(torch.nan)

        for skipped in (1, 2):
            assert not any(configs.step(STAGE).values())
            assert update.skipped_in_a_row == skipped

        configs.network.decoder_bias.copy_(good)

    assert torch.equal(weights(configs), before)
    assert configs.step(STAGE)["n_labels"] > 0
    assert update.skipped_in_a_row == 0
    assert weights(configs).isfinite().all()
    assert not lines


def test_the_losses_of_a_replayed_step_survive_the_next_one(corpus_file, on_tape):
    """A source may keep them."""
    configs = configs_for(corpus_file)
    ready_to_record(configs)
    _, (losses,) = configs.step.run_update(configs.step.draw(STAGE))
    before = losses.clone()
    _, (others,) = configs.step.run_update(configs.step.draw(STAGE))

    assert torch.equal(losses, before)
    assert not torch.equal(losses, others)


class Launches(TorchDispatchMode):
    """Counts the operations that are not views; a graph is one."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.n += not func.is_view
        return result


def recorded_and_eager(corpus_file, **keys):
    """Two equal sources; the draws of one are recorded."""
    sources = [configs_for(corpus_file, **keys).source for _ in range(2)]
    lines = []
    sources[0].draw = RecordedDraws(
        sources[0].draw, generators_of(sources[0]), lines.append
    )
    return (*sources, lines)


def test_recorded_draws_are_those_of_the_source(corpus_file, on_tape):
    """Through two lengths and back and two masking rates, and after a state is restored."""
    source, eager, lines = recorded_and_eager(corpus_file)
    kept = []
    for seq_len in (32, 64, 32):
        before = deepcopy(eager.state_dict())
        for i in range(2 * N_STEPS):
            if i == N_STEPS:
                eager.load_state_dict(before)
                source.load_state_dict(before)
            rate = (0.2, 0.5)[i % 2]
            batch = source.draw(4, seq_len, rate, i / N_STEPS)
            expected = eager.draw(4, seq_len, rate, i / N_STEPS)
            kept.append((batch, expected))

    torch.testing.assert_close(*zip(*kept, strict=True), rtol=0, atol=0)
    torch.testing.assert_close(source.state_dict(), eager.state_dict())
    assert len(on_tape) == 3 * 2 * (N_STEPS - EAGER_STEPS)
    assert not lines


def test_a_recorded_draw_is_four_launches(corpus_file, on_tape, monkeypatch):
    source, eager, _ = recorded_and_eager(corpus_file)
    for _ in range(EAGER_STEPS + 1):
        source.draw(4, 32, 0.2, 0.0)
    monkeypatch.setattr(Tape, "replay", lambda tape: None)
    counts = []
    for each in (eager, source):
        with Launches() as launches:
            each.draw(4, 32, 0.2, 0.0)
        counts.append(launches.n)

    assert counts[0] > 20
    assert counts[1] == 3  # copies, beside the graph


@pytest.mark.parametrize(
    "keys",
    [
        {"masking__strategy": "span"},
        {"data__sampling": "shuffled"},
        {"objective__sop": True},
    ],
)
def test_draws_that_depend_on_more_than_generators_are_not_recorded(corpus_file, keys):
    assert not generators_of(configs_for(corpus_file, **keys).source)


def test_noam_computes_its_learning_rate_in_python_and_is_never_recorded(corpus_file):
    assert can_record(configs_for(corpus_file).update)
    assert not can_record(configs_for(corpus_file, training__optimizer="noam").update)


def test_learning_rates_on_the_device_train_like_those_in_python(corpus_file):
    plain = configs_for(corpus_file)
    on_device = configs_for(corpus_file)
    recordable(on_device, Eager)

    for share in (1.0, 0.5, 0.0):
        step(plain, on_device, share=share)
        # the updates of narrow heads enlarge rounding
        torch.testing.assert_close(
            weights(plain), weights(on_device), rtol=1e-5, atol=3e-6
        )
        # numbers, as saved
        assert str(groups_of(plain)) == str(groups_of(on_device))


def groups_of(configs):
    return [
        optimizer.state_dict()["param_groups"]
        for optimizer in configs.update.optimizers
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="recording works here")
def test_training_goes_on_if_nothing_can_be_recorded(corpus_file):
    plain = configs_for(corpus_file)
    other = configs_for(corpus_file)
    lines = ready_to_record(other)
    step(other, share=0.5)
    (line,) = lines

    assert line.startswith("training without CUDA graphs: ")
    assert not is_recorded(other)

    for _ in range(EAGER_STEPS + 1):
        step(plain, share=0.5)

    # the same windows and masks
    assert torch.allclose(weights(plain), weights(other), rtol=1e-3, atol=1e-5)


@needs_cuda
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"training__grad_accum_steps": 2},
        {"objective__sop": True},
        {"model__ngrams": 4},
    ],
)
def test_a_graph_trains_like_the_steps_that_it_was_recorded_from(corpus_file, keys):
    eager = configs_for(corpus_file, device="cuda", training__cuda_graph=False, **keys)
    replayed = configs_for(corpus_file, device="cuda", **keys)
    lines = recordable(replayed)

    for stage in eager.training.all_stages:
        for i in range(N_STEPS):
            sums, others = step(eager, replayed, share=1 / (1 + i), stage=stage)
            assert sums["n_labels"] == others["n_labels"]
            assert torch.allclose(sums["loss"], others["loss"], rtol=1e-3)

    assert not lines
    assert is_recorded(replayed)
    assert torch.allclose(weights(eager), weights(replayed), rtol=1e-3, atol=1e-4)


@needs_cuda
def test_recorded_draws_on_cuda_are_those_of_the_source(corpus_file):
    source, eager, lines = recorded_and_eager(corpus_file, device="cuda")
    for _ in range(N_STEPS):
        batch = source.draw(4, 32, 0.2, 0.0)
        torch.testing.assert_close(batch, eager.draw(4, 32, 0.2, 0.0))

    torch.testing.assert_close(source.state_dict(), eager.state_dict())
    assert not lines


@needs_cuda
def test_a_graph_draws_new_dropout_masks_at_each_replay(corpus_file):
    configs = configs_for(corpus_file, device="cuda", model__dropout=0.5)
    ready_to_record(configs)
    set_learning_rate(configs.update.optimizers, 0.0)
    batches = configs.step.draw(STAGE)
    losses = {float(configs.step.run_update(batches)[0]["loss"]) for _ in range(4)}

    assert is_recorded(configs)
    assert len(losses) == 4


@needs_cuda
def test_training_goes_on_after_a_recording_that_failed(corpus_file, monkeypatch):
    configs = configs_for(corpus_file, device="cuda", model__dropout=0.1)
    lines = ready_to_record(configs)
    monkeypatch.setattr(
        configs.step.update, "optimize_if", lambda is_finite: is_finite.item()
    )

    for _ in range(3):
        assert configs.step(STAGE)["loss"].isfinite()

    assert len(lines) == 1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
