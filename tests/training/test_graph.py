"""What a CUDA graph asks of a training step. Where there is no GPU it is asked one by one, without a graph."""

from contextlib import nullcontext

import pytest
import torch

from configs.experiment import Configs
from model import MaskedLanguageModel, ModernEncoder
from tests.conftest import configs_for, weights
from tests.training.tape import Tape
from training import optimizer
from training.compilation import compile_or_record
from training.graph import PLAIN_STEPS, GraphedUpdate, can_be_recorded
from training.optimizers import set_learning_rate
from training.schedule import Stage
from training.step import TrainingStep

STAGE = Stage(1.0, 32, 0.15)
CPU = torch.device("cpu")


def graphed(configs: Configs) -> TrainingStep:
    """A step as it is on CUDA once it is compiled: its update is to be recorded."""
    step = configs.step
    step.reading_waits = True
    step._graphed = GraphedUpdate(step._update, step.optimizers, CPU)
    return step


@pytest.fixture
def on_tape(monkeypatch):
    """Graphs are recorded on a tape, as the code knows them from CUDA."""
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
        {"objective__sop": True},
    ],
)
def test_what_is_replayed_trains_as_what_was_recorded(corpus_file, on_tape, keys):
    """Through several lengths and back, with a learning rate that changes every step, bit for bit."""
    plain, recorded = (configs_for(corpus_file, **keys) for _ in range(2))
    said: list[str] = []
    stages = [*plain.training.stage_rows, plain.training.stage_rows[0]]
    for configs in (plain, recorded):
        graphed(configs)
    n_replayed = 0
    for i, stage in enumerate(stage for stage in stages for _ in range(PLAIN_STEPS + 3)):
        for configs in (plain, recorded):
            set_learning_rate(configs.step.optimizers, 1 / (1 + i))
        if not recorded.step.is_ready_for(stage):
            before = weights(recorded)
            compile_or_record(recorded.step, stage, said.append)
            assert torch.equal(weights(recorded), before)
        for one, other in zip(plain.step(stage), recorded.step(stage), strict=True):
            assert torch.equal(one, other)
        assert torch.equal(weights(plain), weights(recorded))
        n_replayed += recorded.step._graphed._recorded is not None
    assert not said
    assert n_replayed == 3 * len(stages)


def test_a_replayed_step_without_numbers_is_skipped(corpus_file, on_tape):
    """The weights are where it takes them from: what a graph does depends on nothing that Python knows."""
    configs = configs_for(corpus_file)
    step = graphed(configs)
    for _ in range(PLAIN_STEPS):
        step(STAGE)
    step.record(STAGE)
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


def test_what_an_update_changes_stays_where_it_is(corpus_file):
    """A graph knows addresses."""
    configs = configs_for(corpus_file)
    step = configs.step

    def addresses() -> list[int]:
        state = [value for each in step.optimizers for values in each.state.values() for value in values.values()]
        return [tensor.data_ptr() for tensor in (*configs.network.parameters(), *state, step.skipped_in_a_row)]

    step(STAGE)
    before, there = weights(configs), addresses()
    step(STAGE)
    assert not torch.equal(weights(configs), before)
    assert addresses() == there


def test_learning_rates_on_the_device_train_as_those_in_python_do(corpus_file):
    plain, on_device = (configs_for(corpus_file) for _ in range(2))
    graphed(on_device)
    for factor in (1.0, 0.5, 0.0):
        for configs in (plain, on_device):
            set_learning_rate(configs.step.optimizers, factor)
            configs.step(STAGE)
        assert torch.allclose(weights(plain), weights(on_device), rtol=1e-4, atol=1e-6)
        for one, other in zip(plain.step.optimizers, on_device.step.optimizers, strict=True):
            assert str(one.state_dict()["param_groups"]) == str(other.state_dict()["param_groups"])  # numbers, as saved


def test_labml_nns_noam_is_never_recorded():
    """Its learning rate is computed in Python: a graph would keep that of the step that it was recorded from."""
    net = MaskedLanguageModel(ModernEncoder(n_tokens=30, d_model=16, n_layers=2, n_heads=2, d_ff=16))
    assert not can_be_recorded(optimizer.noam(net, learning_rate=1.0, d_model=16))
    muon = optimizer.muon(net, learning_rate=1e-3, muon_learning_rate=0.02, muon_momentum=0.95, weight_decay=0.0)
    assert can_be_recorded(muon)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it can be recorded")
def test_where_nothing_can_be_recorded_training_goes_on(corpus_file):
    plain, other = (configs_for(corpus_file) for _ in range(2))
    step, said = graphed(other), []
    for _ in range(PLAIN_STEPS):
        assert step.is_ready_for(STAGE)
        step(STAGE)
    assert not step.is_ready_for(STAGE)
    compile_or_record(step, STAGE, said.append)
    assert len(said) == 1
    assert "CUDA graphs do not work here" in said[0]
    assert step.is_ready_for(STAGE)
    step(STAGE)
    for _ in range(PLAIN_STEPS + 1):
        plain.step(STAGE)
    assert torch.allclose(weights(plain), weights(other), rtol=1e-3, atol=1e-5)  # the same windows, the same masks


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("keys", [{}, {"training__grad_accum_steps": 2}, {"objective__sop": True}])
def test_a_graph_trains_as_the_steps_that_it_was_recorded_from(corpus_file, keys):
    plain, recorded = (configs_for(corpus_file, device="cuda", **keys) for _ in range(2))
    stages, said = plain.training.stage_rows, []
    for configs in (plain, recorded):
        configs.step.compile(stages)
    for i, stage in enumerate(stage for stage in stages for _ in range(PLAIN_STEPS + 4)):
        if not recorded.step.is_ready_for(stage):
            compile_or_record(recorded.step, stage, said.append)
        for configs in (plain, recorded):
            set_learning_rate(configs.step.optimizers, 1 / (1 + i))
        sums, others = plain.step(stage), recorded.step(stage)
        assert sums.n_labels == others.n_labels
        assert torch.allclose(sums.loss_sum, others.loss_sum, rtol=1e-3)
    assert not said
    assert recorded.step._graphed is not None
    assert recorded.step._graphed._recorded is not None
    assert torch.allclose(weights(plain), weights(recorded), rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_graph_drops_out_anew_each_time(corpus_file):
    step = configs_for(corpus_file, device="cuda", model__dropout=0.5).step
    step.compile([STAGE])
    set_learning_rate(step.optimizers, 0.0)
    for _ in range(PLAIN_STEPS):
        step(STAGE)
    step.record(STAGE)
    batch = step._draw(STAGE)
    losses = {float(step._graphed([batch])[0].loss_sum) for _ in range(4)}
    assert len(losses) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_after_a_recording_that_failed_training_goes_on(corpus_file, monkeypatch):
    step, said = configs_for(corpus_file, device="cuda", model__dropout=0.1).step, []
    step.compile([STAGE])
    for _ in range(PLAIN_STEPS):
        step(STAGE)
    with monkeypatch.context() as patched:
        patched.setattr(step, "_optimize", lambda: step.skipped_in_a_row.item())
        compile_or_record(step, STAGE, said.append)
    assert len(said) == 1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    for _ in range(2):
        assert step(STAGE).loss_sum.isfinite()
