"""Numbers that are none, and memory that is not there."""

import os
import resource
import subprocess
import sys

import pytest
import torch

from configs.command_line import resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from configs.memory import is_out_of_memory, what_to_lower
from tests.conftest import ROOT, TINY, weights
from training.health_checks import SKIPPED_IN_A_ROW, HealthCheckError
from training.schedule import Stage

STAGE = Stage(1.0, 32, 0.15)


class Breaking(torch.nn.Module):
    """A model whose logits are no numbers while `is_broken`; the gradients alone where `in_gradients`."""

    def __init__(self, model: torch.nn.Module, in_gradients: bool = False):
        super().__init__()
        self.inner = model
        self.encoder = model.encoder
        self.is_broken = False
        self.in_gradients = in_gradients

    def forward(self, inputs, positions=None):
        logits = self.inner(inputs, positions)
        if not self.is_broken:
            return logits
        if self.in_gradients:  # sqrt(0) is 0, and its slope infinite
            return logits + (logits * 0).abs().sqrt()
        return logits * float("nan")


@pytest.mark.parametrize("in_gradients", [False, True])
@pytest.mark.parametrize("strategy", ["random", "adaptive"])
def test_a_step_without_numbers_is_skipped_and_the_next_one_is_not(corpus_file, in_gradients, strategy):
    configs = configs_of(resolve(TINY, {"data.corpus": str(corpus_file), "masking.strategy": strategy}))
    step = configs.step
    step.model = Breaking(configs.network, in_gradients)
    step(STAGE)
    before = weights(configs)
    optimizer = [str(optimizer.state_dict()) for optimizer in step.optimizers]
    step.model.is_broken = True
    for skipped in (1, 2):
        sums = step(STAGE)
        assert step.skipped_in_a_row == skipped
        assert all(total == 0 for total in sums)  # in no sum: one NaN would make the whole interval one
    assert torch.equal(weights(configs), before)
    assert [str(optimizer.state_dict()) for optimizer in step.optimizers] == optimizer
    step.model.is_broken = False
    assert step(STAGE).n_labels > 0
    assert step.skipped_in_a_row == 0
    assert not torch.equal(weights(configs), before)
    assert weights(configs).isfinite().all()
    assert all(learned.isfinite().all() for learned in step.masker.segmenter.state_dict().values())


def test_too_many_in_a_row_end_the_run_and_keep_the_last_good_checkpoint(corpus_file, train):
    configs = configs_of(resolve(TINY, {"data.corpus": str(corpus_file), "training.max_steps": 60}))
    breaking = Breaking(configs.network)
    configs.trainer.training_step.model = breaking
    good: list[torch.Tensor] = []

    def break_it(heard) -> None:
        good.append(weights(configs))
        breaking.is_broken = True

    with pytest.raises(HealthCheckError, match=rf"last {SKIPPED_IN_A_ROW} steps, up to step 50 \(windows of 64"):
        train(
            configs,
            on_row=break_it,
            training__max_steps=60,
            checkpoint__every_seconds=0.001,
            data__corpus=str(corpus_file),
        )
    assert torch.equal(weights(configs), good[0])


def test_an_interval_of_skipped_steps_alone_ends_the_run_in_one_line(corpus_file, train):
    """Also where it is too short for the alarm about steps in a row: there is no loss that a row could have."""
    configs = configs_of(resolve(TINY, {"data.corpus": str(corpus_file), "training.max_steps": 8}))
    configs.trainer.training_step.model = breaking = Breaking(configs.network)

    def break_it(heard) -> None:
        breaking.is_broken = True

    with pytest.raises(HealthCheckError, match="the loss is nan in training and"):
        train(configs, on_row=break_it, training__max_steps=8, data__corpus=str(corpus_file))


@pytest.mark.parametrize(
    "keys",
    [
        {"model.d_model": 16_384, "model.n_layers": 256, "model.n_heads": 16, "model.d_ff": 65_536},
        {"training.chars_per_step": 2**30, "model.d_model": 16_384, "model.n_heads": 16},
    ],
)
def test_what_cannot_fit_is_refused_before_it_is_asked_for(keys):
    with pytest.raises(ConfigError, match=r"GiB of memory.*lower model\.d_model \(now 16384\)"):
        resolve(TINY, keys)


def test_a_size_beyond_all_ranges_is_refused():
    from configs.command_line import parse

    with pytest.raises(ConfigError, match=r"model\.d_model=1000000000: it must be"):
        parse(["model.d_model=1000000000"])


def test_out_of_memory_names_the_keys_to_lower(corpus_file, tmp_path):
    """A real one: the process may take 6 GB of addresses, and its step asks for more."""
    program = "import sys; from experiment import main; sys.exit(main(sys.argv[1:]))"
    keys = [
        "device=cpu",
        "training.compile=false",
        f"data.corpus={corpus_file}",
        f"logs={tmp_path}",
        "training.max_steps=1",
    ]
    keys += ["training.chars_per_step=1048576", "model.d_model=512", "model.d_ff=1024"]
    keys += ["training.stages=[{until: 1.0, seq_len: 1024}]"]
    result = subprocess.run(
        [sys.executable, "-c", program, *keys],
        cwd=ROOT,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "stopped: out of memory on cpu" in result.stderr
    assert "training.chars_per_step (now 1048576)" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_message_for_a_gpu_is_the_same():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert "model.d_model (now 32)" in what_to_lower(resolve(TINY, {}))


def test_a_clock_that_jumps_moves_no_budget(corpus_file, train, monkeypatch):
    """The time of day goes back a year and on by two: training is timed by a clock that cannot."""
    import time

    now = [1e9, -3e7, 6e7]
    monkeypatch.setattr(time, "time", lambda: now[len(now) % 3] + len(now))
    rows = train(data__corpus=str(corpus_file), training__max_seconds=1.0, training__evaluations=4).heard.rows
    assert len(rows) == 4
    for name in ("seconds", "wall_seconds"):
        values = [row[name] for row in rows]
        assert values == sorted(values)
        assert values[-1] < 60
