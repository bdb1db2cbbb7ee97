"""The torchrun command itself, and the values that a program takes from it."""

import signal
import subprocess
from contextlib import nullcontext

import pytest
import torch

from configs.command_line import parse, resolve
from configs.devices import available_device
from configs.keys import ConfigError
from distributed import meeting
from runs.find import find_started_by
from runs.run_folder import RunFolder
from tests.conftest import TINY
from tests.distributed.conftest import Launcher


def test_torchrun_trains_and_ctrl_c_ends_it_with_the_command_to_resume(launcher):
    started = launcher.start_torchrun(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started.send_signal(signal.SIGINT)
    output, _ = started.communicate(timeout=60)
    run = launcher.only_run()
    assert output.decode().splitlines()[-1] == (
        f"torchrun --standalone --nproc_per_node=2 experiment.py --resume {run.path.name}"
    )
    assert started.returncode == 1
    assert run.status()["status"] == "interrupted"


@pytest.fixture
def started(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torchrun had started 8 processes on this machine."""
    for name, value in launcher.environment(8, attempt=0).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")


def test_every_torchrun_command_has_an_identity_that_restarts_keep(started, launcher, monkeypatch):
    first = meeting.torchrun_id()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert meeting.torchrun_id() == first
    monkeypatch.setenv("MASTER_PORT", str(launcher.new_store()))  # another command with the same --rdzv-id
    assert meeting.torchrun_id() != first


def test_a_run_is_found_by_its_command(tmp_path):
    runs = [RunFolder(tmp_path / "mlm" / name) for name in ("found", "without torchrun", "damaged")]
    for run, launch in zip(runs, ["a", None, "b"], strict=True):
        run.save_config({})
        run.save_about("mlm", "", [], launch)
    runs[-1].about_path.write_text("{")
    found = find_started_by("a", tmp_path)
    assert found is not None
    assert found.path == runs[0].path
    assert find_started_by("b", tmp_path) is None
    assert find_started_by(None, tmp_path) is None


def test_too_few_gpus_and_several_seeds_are_refused(started, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ConfigError, match="--nproc_per_node=4"):
        available_device("cuda")
    with pytest.raises(ConfigError, match="--seeds starts several runs"):
        parse(["--seeds", "2"])


SIZES = {"model.d_model": 64, "model.n_layers": 64, "model.d_ff": 16, "training.chars_per_step": 1024}  # 17 MiB
BATCH = {"training.chars_per_step": 65_536}  # 17 MiB of activations


@pytest.mark.parametrize(
    ("keys", "is_too_much"),
    [(SIZES, True), (SIZES | {"training.parallel": "fsdp"}, False), (BATCH, False)],
    ids=["a whole model per process", "a sharded model", "a shared batch"],
)
def test_the_memory_of_a_device_is_compared_with_the_share_of_a_process(started, monkeypatch, keys, is_too_much):
    monkeypatch.setattr("configs.memory._memory_of", lambda device: 8 * 2**20)
    values = TINY | {"training.max_steps": 1} | keys
    with pytest.raises(ConfigError, match="of memory") if is_too_much else nullcontext():
        resolve(values, {})
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match="of memory"):
        resolve(values, {})
