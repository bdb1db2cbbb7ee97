"""Recorded steps. Without a GPU a tape stands in for the CUDA graph: see `tests.training.tape`."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from configs.experiment import Configs
from model import MaskedLanguageModel, ModernEncoder
from tests.conftest import configs_for, weights
from tests.training.tape import Tape
from training import optimizers, recording
from training.compilation import Compilation
from training.optimizers import set_learning_rate
from training.recording import EAGER_STEPS, RecordedUpdate, can_record, relative_difference
from training.schedule import Stage, stage_at
from training.step import TrainingStep

STAGE = Stage(1.0, 32, 0.15)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def recordable(configs: Configs) -> Compilation:
    """A step as it is on CUDA after compiling: its update will be recorded."""
    step = configs.step
    step.reading_synchronizes = True
    for module in configs.network.modules():
        if isinstance(module, torch.nn.EmbeddingBag):
            module.sparse = False
    compilation = Compilation(step)
    compilation.recorded = step.run_update = RecordedUpdate(step)
    return compilation


def ready_to_record(configs: Configs) -> Compilation:
    compilation = recordable(configs)
    for _ in range(EAGER_STEPS):
        set_learning_rate(configs.step.optimizers, 0.5)
        configs.step(STAGE)
    assert not compilation.is_ready(STAGE)
    return compilation


@pytest.fixture
def on_tape(monkeypatch):
    """Records graphs on a tape, through the interface of CUDA graphs."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", Tape.recorded)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())


@pytest.mark.parametrize(
    "keys",
    [
        {"training__grad_accum_steps": 2},
        {"masking__strategy": "adaptive"},
        {"training__optimizer": "adamw"},
        {"model__ngrams": 4},
        {"objective__sop": True},
    ],
)
def test_replayed_steps_train_like_eager_ones(corpus_file, on_tape, keys):
    """Through several lengths and back, with a learning rate that changes at every step, bit for bit."""
    eager, replayed = (configs_for(corpus_file, **keys) for _ in range(2))
    recordable(eager)
    compilation = recordable(replayed)
    lines: list[str] = []
    stages = [*eager.training.stage_rows, eager.training.stage_rows[0]]
    n_replayed = 0
    for i, stage in enumerate(stage for stage in stages for _ in range(EAGER_STEPS + 3)):
        for configs in (eager, replayed):
            set_learning_rate(configs.step.optimizers, 1 / (1 + i))
        if not compilation.is_ready(stage):
            before = [weights(replayed), str(replayed.step.state_dict())]
            compilation.prepare(stage, lines.append)
            assert torch.equal(weights(replayed), before[0])
            assert str(replayed.step.state_dict()) == before[1]  # recording and checking train nothing
        for one, other in zip(eager.step(stage), replayed.step(stage), strict=True):
            assert torch.equal(one, other)
        assert torch.equal(weights(eager), weights(replayed))
        n_replayed += len(compilation.recorded._recorded)
    assert not lines
    assert n_replayed == 3 * len(stages)


def test_each_masking_rate_has_its_own_graph(corpus_file, on_tape):
    stages = [{"until": 1.0, "seq_len": 32, "masking_prob": [0.2, 0.5, 0.9]}]
    eager, replayed = (configs_for(corpus_file, training__stages=stages) for _ in range(2))
    recordable(eager)
    compilation = recordable(replayed)
    lines: list[str] = []
    for i in range(3 * (EAGER_STEPS + 2)):
        stage = stage_at(replayed.training.stage_rows, 0.0, step=i)
        if not compilation.is_ready(stage):
            compilation.prepare(stage, lines.append)
        for configs in (eager, replayed):
            set_learning_rate(configs.step.optimizers, 1 / (1 + i))
        for one, other in zip(eager.step(stage), replayed.step(stage), strict=True):
            assert torch.equal(one, other)
    assert torch.equal(weights(eager), weights(replayed))
    assert not lines
    assert len(compilation.recorded._recorded) == 3


def learning_rate_in_the_graph(monkeypatch, step: TrainingStep) -> None:
    """The graph repeats the learning rate that it was recorded with."""

    def optimize() -> None:
        for optimizer in step.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"].clone().fill_(1e-3)
            optimizer.step()

    original = step._optimize
    monkeypatch.setattr(step, "_optimize", lambda: optimize() if isinstance(torch_mode(), Tape) else original())


def input_outside_the_static_buffer(monkeypatch, step: TrainingStep) -> None:
    """New batches are copied elsewhere, so the graph keeps reading the labels that it was recorded with."""
    monkeypatch.setattr(recording, "_inputs", lambda batch: [batch.inputs, batch.positions])


def optimizer_state_created_while_recording(monkeypatch, step: TrainingStep) -> None:
    """Each replay creates the momenta again, as zeros."""
    for optimizer in step.optimizers:
        optimizer.state.clear()


def torch_mode() -> object:
    """The innermost dispatch mode, which is the tape while it records."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_dispatch_mode()


@pytest.mark.parametrize(
    "fault", [learning_rate_in_the_graph, input_outside_the_static_buffer, optimizer_state_created_while_recording]
)
def test_a_wrong_graph_is_never_used(corpus_file, on_tape, monkeypatch, fault: Callable):
    eager, faulty = (configs_for(corpus_file) for _ in range(2))
    compilations = [ready_to_record(configs) for configs in (eager, faulty)]
    lines: list[str] = []
    with monkeypatch.context() as patch:
        fault(patch, faulty.step)
        if fault is optimizer_state_created_while_recording:
            optimizer_state_created_while_recording(patch, eager.step)
        compilations[1].prepare(STAGE, lines.append)
    assert len(lines) == 1
    assert "training without CUDA graphs: a replayed step differs from an eager one by" in lines[0]
    assert "\n" not in lines[0]
    assert faulty.step.run_update == faulty.step.update
    assert not compilations[1].cuda_graph  # nor is another shape recorded
    eager.step.run_update = eager.step.update
    for _ in range(2):
        assert compilations[1].is_ready(STAGE)
        for configs in (eager, faulty):
            configs.step(STAGE)
        assert torch.equal(weights(eager), weights(faulty))  # recording and failing changed nothing


def test_a_replayed_step_that_is_not_finite_is_skipped(corpus_file, on_tape):
    """The graph reads the weights from memory: nothing that it does depends on values in Python."""
    configs = configs_for(corpus_file)
    step, compilation = configs.step, ready_to_record(configs)
    compilation.prepare(STAGE, pytest.fail)
    bias = configs.network.decoder_bias
    good, before = bias.detach().clone(), weights(configs)
    bias.data.fill_(torch.nan)
    for skipped in (1, 2):
        assert all(total == 0 for total in step(STAGE))
        assert step.skipped_in_a_row == skipped
    bias.data.copy_(good)
    assert torch.equal(weights(configs), before)
    assert step(STAGE).n_labels > 0
    assert step.skipped_in_a_row == 0
    assert weights(configs).isfinite().all()


def test_the_losses_of_a_replayed_step_survive_the_next_one(corpus_file, on_tape):
    """A masker may keep them."""
    configs = configs_for(corpus_file)
    step = configs.step
    ready_to_record(configs).prepare(STAGE, pytest.fail)
    _, (losses,) = step.run_update(step.draw(STAGE))
    before = losses.clone()
    _, (others,) = step.run_update(step.draw(STAGE))
    assert torch.equal(losses, before)
    assert not torch.equal(losses, others)


def test_an_update_changes_its_tensors_in_place(corpus_file):
    """A graph knows addresses only."""
    configs = configs_for(corpus_file)
    step = configs.step

    def addresses() -> list[int]:
        state = [value for each in step.optimizers for values in each.state.values() for value in values.values()]
        return [tensor.data_ptr() for tensor in (*configs.network.parameters(), *state, step.skipped_in_a_row)]

    step(STAGE)
    before, addresses_before = weights(configs), addresses()
    step(STAGE)
    assert not torch.equal(weights(configs), before)
    assert addresses() == addresses_before


def test_learning_rates_on_the_device_train_like_those_in_python(corpus_file):
    plain, on_device = (configs_for(corpus_file) for _ in range(2))
    recordable(on_device)
    for factor in (1.0, 0.5, 0.0):
        for configs in (plain, on_device):
            set_learning_rate(configs.step.optimizers, factor)
            configs.step(STAGE)
        assert torch.allclose(weights(plain), weights(on_device), rtol=1e-4, atol=1e-6)
        for one, other in zip(plain.step.optimizers, on_device.step.optimizers, strict=True):
            assert str(one.state_dict()["param_groups"]) == str(other.state_dict()["param_groups"])  # numbers, as saved


def test_noam_is_never_recorded(corpus_file):
    """It computes its learning rate in Python: a graph would keep the rate that it was recorded with."""
    net = MaskedLanguageModel(ModernEncoder(n_tokens=30, d_model=16, n_layers=2, n_heads=2, d_ff=16))
    step = configs_for(corpus_file).step
    assert can_record(step)
    step.optimizers = optimizers.noam(net, learning_rate=1.0, d_model=16)
    assert not can_record(step)


def test_the_relative_difference_is_relative_to_the_norm_of_the_first():
    assert relative_difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])) == 0
    assert relative_difference(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 3.0])) == 0.2
    assert relative_difference(torch.zeros(2), torch.zeros(2)) == 0
    assert relative_difference(torch.tensor(0), torch.tensor(1)) > 1e9
    assert relative_difference(torch.ones(2), torch.tensor([1.0, torch.nan])) > 1e9


def noisy(monkeypatch, step: TrainingStep, size: float) -> None:
    """Kernels that add in varying order: every update leaves noise of this relative size in one optimizer state."""
    update, generator = step.update, torch.Generator().manual_seed(0)

    def with_noise(batches):
        outcome = update(batches)
        state = next(iter(step.optimizers[0].state.values()))["exp_avg"]
        state.add_(torch.randn(state.shape, generator=generator) * state.abs().mean() * size)
        return outcome

    monkeypatch.setattr(step, "update", with_noise)


@pytest.mark.parametrize("fault", [learning_rate_in_the_graph, input_outside_the_static_buffer])
def test_noise_in_one_tensor_hides_no_fault_in_another(corpus_file, on_tape, monkeypatch, fault: Callable):
    """After many steps, at a small learning rate."""
    configs = configs_for(corpus_file)
    noisy(monkeypatch, configs.step, size=1.0)
    compilation = recordable(configs)
    for _ in range(30):
        set_learning_rate(configs.step.optimizers, 0.01)
        configs.step(STAGE)
    fault(monkeypatch, configs.step)
    lines: list[str] = []
    compilation.prepare(STAGE, lines.append)
    assert len(lines) == 1
    assert "a replayed step differs from an eager one" in lines[0]


@pytest.mark.parametrize(("size", "accepted"), [(1e-5, True), (1.0, False)])
def test_a_graph_is_accepted_up_to_a_limit_of_noise(corpus_file, on_tape, monkeypatch, size, accepted):
    configs = configs_for(corpus_file)
    compilation = ready_to_record(configs)
    noisy(monkeypatch, configs.step, size)
    lines: list[str] = []
    compilation.prepare(STAGE, lines.append)
    assert (not lines) == accepted
    assert (compilation.recorded is not None) == accepted


def test_recording_is_tried_again_after_a_step_that_is_not_finite(corpus_file, on_tape):
    configs = configs_for(corpus_file)
    compilation = ready_to_record(configs)
    bias = configs.network.decoder_bias
    good = bias.detach().clone()
    bias.data.fill_(torch.nan)
    compilation.prepare(STAGE, pytest.fail)
    assert not configs.step.run_update._recorded
    bias.data.copy_(good)
    for _ in range(EAGER_STEPS):
        assert compilation.is_ready(STAGE)
        configs.step(STAGE)
    compilation.prepare(STAGE, pytest.fail)
    assert configs.step.run_update._recorded


@pytest.mark.skipif(torch.cuda.is_available(), reason="recording works here")
def test_training_goes_on_if_nothing_can_be_recorded(corpus_file):
    plain, other = (configs_for(corpus_file) for _ in range(2))
    compilation, lines = ready_to_record(other), []
    compilation.prepare(STAGE, lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("training without CUDA graphs: ")
    assert compilation.is_ready(STAGE)
    other.step(STAGE)
    for _ in range(EAGER_STEPS):
        set_learning_rate(plain.step.optimizers, 0.5)
        plain.step(STAGE)
    plain.step(STAGE)
    assert torch.allclose(weights(plain), weights(other), rtol=1e-3, atol=1e-5)  # the same windows and masks


@needs_cuda
@pytest.mark.parametrize(
    "keys", [{}, {"training__grad_accum_steps": 2}, {"objective__sop": True}, {"model__ngrams": 4}]
)
def test_a_graph_trains_like_the_steps_that_it_was_recorded_from(corpus_file, keys):
    eager, replayed = (configs_for(corpus_file, device="cuda", **keys) for _ in range(2))
    stages, lines = eager.training.stage_rows, []
    compilations = [
        Compilation(configs.step, cuda_graph=graph) for configs, graph in ((eager, False), (replayed, True))
    ]
    for compilation in compilations:
        compilation.compile(stages, lines.append)
    for i, stage in enumerate(stage for stage in stages for _ in range(EAGER_STEPS + 4)):
        if not compilations[1].is_ready(stage):
            compilations[1].prepare(stage, lines.append)
        for configs in (eager, replayed):
            set_learning_rate(configs.step.optimizers, 1 / (1 + i))
        sums, others = eager.step(stage), replayed.step(stage)
        assert sums.n_labels == others.n_labels
        assert torch.allclose(sums.loss, others.loss, rtol=1e-3)
    assert not any("without" in line for line in lines)
    assert compilations[1].recorded._recorded
    assert torch.allclose(weights(eager), weights(replayed), rtol=1e-3, atol=1e-4)


@needs_cuda
def test_a_graph_draws_new_dropout_masks_at_each_replay(corpus_file):
    step = configs_for(corpus_file, device="cuda", model__dropout=0.5).step
    compilation = Compilation(step)
    compilation.compile([STAGE], print)
    set_learning_rate(step.optimizers, 0.0)
    for _ in range(EAGER_STEPS):
        step(STAGE)
    compilation.prepare(STAGE, pytest.fail)
    batches = step.draw(STAGE)
    losses = {float(step.run_update(batches)[0].loss) for _ in range(4)}
    assert len(losses) == 4


@needs_cuda
def test_training_goes_on_after_a_recording_that_failed(corpus_file, monkeypatch):
    step, lines = configs_for(corpus_file, device="cuda", model__dropout=0.1).step, []
    compilation = Compilation(step)
    compilation.compile([STAGE], print)
    for _ in range(EAGER_STEPS):
        step(STAGE)
    with monkeypatch.context() as patched:
        patched.setattr(step, "_optimize", lambda: step.skipped_in_a_row.item())
        compilation.prepare(STAGE, lines.append)
    assert len(lines) == 1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    for _ in range(2):
        assert step(STAGE).loss.isfinite()
