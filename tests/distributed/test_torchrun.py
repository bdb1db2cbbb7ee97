"""The torchrun command itself, and the values that a program takes from it."""

import os
import pickle
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from configs.command_line.command import parse, resolve
from configs.devices import available_device
from configs.keys import ConfigError
from distributed import meeting
from runs.errors import StoppedError
from runs.files import ROOT
from runs.find import find_started_by
from runs.run_folder import RunFolder
from tests.conftest import TINY, one_line, only_run, until, written
from tests.distributed.conftest import WITHOUT_END


def test_torchrun_trains_and_ctrl_c_ends_it_with_the_command_to_resume(launcher):
    config = launcher.config(**WITHOUT_END)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
    ]
    words = [*torchrun, "experiment.py", "--config", config]
    started = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    launcher.started.append(started)
    launcher.until("logs/mlm/*/checkpoints/last.safetensors")
    started.send_signal(signal.SIGINT)
    output, _ = started.communicate(timeout=60)
    run = launcher.only_run()

    assert output.decode().splitlines()[-1] == (
        f"torchrun --standalone --nproc_per_node=2 experiment.py --resume {run.path}"
    )
    assert started.returncode == 1
    assert run.status()["status"] == "interrupted"


COMMANDS = {  # of Slurm: two machines, of which each has one device
    "scontrol": "echo 127.0.0.1",
    "srun": '"$@" & one=$!; "$@" & two=$!; echo $two > lost; wait $one; code=$?; wait $two && exit $code',
    "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
}


@pytest.mark.slow
def test_the_script_for_several_machines_restarts_what_is_left_after_one_is_lost(
    launcher, tmp_path, monkeypatch
):
    page = (ROOT / "docs" / "devices.md").read_text()
    config = launcher.config(**WITHOUT_END)
    for name, command in COMMANDS.items():
        content = f"#!/bin/bash\ncd {ROOT}\n{command}\n".replace("> ", f"> {tmp_path}/")
        written(tmp_path / name, content).chmod(0o755)

    script = (
        page[page.index("#!/bin/bash") :]
        .partition("```")[0]
        .replace("run.yaml", config)
    )
    script = script.replace("experiment.py", "-m tests.distributed.faulty restart")
    written(tmp_path / "run.sh", script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PORT", str(free.getsockname()[1]))

    slurm = {"JOB_ID": "7", "NNODES": "2", "GPUS_ON_NODE": "1", "JOB_NODELIST": "a,b"}
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with open(tmp_path / "output", "w") as output:
        script = subprocess.Popen(
            ["bash", "run.sh"], cwd=tmp_path, stdout=output, start_new_session=True
        )

    try:
        until(
            lambda: list(tmp_path.glob("logs/7/mlm/*/checkpoints/last.safetensors")),
            120,
        )
        os.kill(int((tmp_path / "lost").read_text()), signal.SIGKILL)
        until(lambda: "resuming at step" in (tmp_path / "output").read_text(), 120)
        only_run(tmp_path / "logs" / "7")  # it is the same run
    finally:
        os.killpg(script.pid, signal.SIGKILL)


@pytest.fixture
def started(launcher, monkeypatch):
    """As if torchrun had started 8 processes on this machine."""
    for name, value in launcher.environment(8, attempt=0).items():
        monkeypatch.setenv(name, value)

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")


def test_every_torchrun_command_has_an_identity_that_restarts_keep(
    started, launcher, monkeypatch
):
    first = meeting.torchrun_id()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")

    assert meeting.torchrun_id() == first

    # another command with the same --rdzv-id
    monkeypatch.setenv("MASTER_PORT", str(launcher.new_store()))
    assert meeting.torchrun_id() != first


def test_a_run_is_found_by_its_command(tmp_path):
    runs = [
        RunFolder(tmp_path / "mlm" / name)
        for name in ("found", "without torchrun", "damaged")
    ]
    for run, launch in zip(runs, ["a", None, "b"], strict=True):
        run.save_config({})
        run.save_about("mlm", "", [], launch)

    runs[-1].about_path.write_text("{")

    assert find_started_by("a", tmp_path).path == runs[0].path
    assert find_started_by("b", tmp_path) is None
    assert find_started_by(None, tmp_path) is None


def test_too_few_gpus_one_for_all_and_several_seeds_are_refused(started, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(ConfigError, match="--nproc_per_node=4"):
        available_device("cuda")

    with pytest.raises(ConfigError, match="a device of its own"):
        available_device("cuda:1")

    with pytest.raises(ConfigError, match="--seeds starts several runs"):
        parse(["--seeds", "2"])


# 17 MiB
SIZES = {
    "model.d_model": 64,
    "model.n_layers": 64,
    "model.d_ff": 16,
    "training.chars_per_step": 1024,
}
BATCH = {"training.chars_per_step": 65_536}  # 17 MiB of activations


@pytest.mark.parametrize(
    ("keys", "is_too_much"),
    [(SIZES, True), (SIZES | {"training.parallel": "fsdp"}, False), (BATCH, False)],
    ids=["a whole model per process", "a sharded model", "a shared batch"],
)
def test_the_memory_of_a_device_is_compared_with_the_share_of_a_process(
    started, monkeypatch, keys, is_too_much
):
    monkeypatch.setattr("configs.memory._memory_of", lambda device: 8 * 2**20)
    values = TINY | {"training.max_steps": 1} | keys

    with (
        pytest.raises(ConfigError, match="of memory") if is_too_much else nullcontext()
    ):
        resolve(values, {})

    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match="of memory"):
        resolve(values, {})


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_in_the_store_executes_nothing_and_is_refused_in_one_line(
    started, tmp_path
):
    store = meeting.store_of_attempt()
    touched = tmp_path / "touched"
    for number, value in enumerate((pickle.dumps(Touch(touched)), b"[1, 2", b"\xff")):
        store.set(f"{number} 1", value)

    exchange = meeting.Meeting(rank=0, n=2)

    for _ in range(3):
        with one_line(StoppedError, "no process of this run"):
            exchange.of_all("mine")

    store.set("3 1", "[2.5, null]")
    assert exchange.of_all({"a": "mine"}) == [{"a": "mine"}, [2.5, None]]
    assert not touched.exists()


def test_nothing_is_unpickled_from_other_processes():
    words = (
        "import pickle",
        "pickle.load",
        "_object_list(",
        "all_gather_object(",
        "from pickle",
    )
    for folder in (
        "configs",
        "data",
        "distributed",
        "model",
        "runs",
        "trained",
        "training",
    ):
        for path in (ROOT / folder).rglob("*.py"):
            assert not any(word in path.read_text() for word in words), path
