"""The use of the machine is recorded while a run trains."""

import threading
from unittest.mock import Mock

import pytest

from runs import hardware
from runs.run_folder import RunFolder
from runs.schema import HARDWARE, read_rows
from tests.conftest import until


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "SECONDS_BETWEEN", 0.2)
    return RunFolder.create(tmp_path / "run")


def rows(run):
    return read_rows(run.hardware_path, HARDWARE)


def test_a_busy_process_is_seen_and_the_thread_ends(run):
    with hardware.recorded(run, lambda: 7, gpu=None):
        # keeps one core busy
        until(lambda: sum(range(100_000)) and len(rows(run)) >= 3)

    assert "hardware" not in [thread.name for thread in threading.enumerate()]

    last = rows(run)[-1]

    assert last.pop("step") == 7
    assert last.pop("time") > 0
    assert last.keys() == {"cpu", "cpu_of_run", "memory", "memory_of_run"}
    assert all(0 <= share <= 100 for share in last.values())
    assert max(row["cpu_of_run"] for row in rows(run)) > 0
    assert 0 < last["memory_of_run"] < last["memory"]


def test_a_missing_folder_does_not_stop_the_recording(run, tmp_path):
    """And without NVIDIA's driver, the GPU is left out."""
    run.path.rename(tmp_path / "moved")
    asked = []

    def step():
        asked.append(len(asked))
        return asked[-1]

    gpu = "GPU-00000000-0000-0000-0000-000000000000"
    with hardware.recorded(run, step, gpu=gpu):
        until(lambda: asked[1:])  # so the first row is lost
        (tmp_path / "moved").rename(run.path)
        until(lambda: rows(run))

    assert rows(run)[0]["step"] > 0
    assert "gpu" not in rows(run)[0]


def test_the_use_of_a_gpu_is_recorded(run, monkeypatch):
    """As NVIDIA's library would answer; the machine has no GPU."""
    library = Mock(NVMLError=OSError)
    library.nvmlDeviceGetMemoryInfo.return_value = Mock(used=20, total=80)
    library.nvmlDeviceGetUtilizationRates.return_value = Mock(gpu=97)
    monkeypatch.setattr(hardware, "pynvml", library)

    with hardware.recorded(run, lambda: 1, gpu="GPU-1"):
        until(lambda: rows(run))

    assert (rows(run)[0]["gpu"], rows(run)[0]["gpu_memory"]) == (97, 25.0)
