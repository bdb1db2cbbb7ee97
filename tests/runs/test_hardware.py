"""The use of the machine is recorded while a run trains."""

import json
import threading

import pytest

from runs import hardware
from runs.run_folder import RunFolder


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.setattr(hardware, "SECONDS_BETWEEN", 0.2)
    return RunFolder.create(tmp_path / "run")


def rows(run: RunFolder) -> list[dict]:
    content = run.hardware_path.read_text() if run.hardware_path.exists() else ""
    return [json.loads(line) for line in content.splitlines()]


def until(condition) -> None:
    for _ in range(1_000):
        if condition():
            return
        threading.Event().wait(0.02)
    pytest.fail("nothing was recorded")


def test_a_busy_process_is_seen_and_nothing_is_written_afterwards(run):
    with hardware.recorded(run, lambda: 7, gpu=None):
        until(lambda: sum(range(100_000)) and len(rows(run)) >= 3)  # keeps one core busy
    n_rows = len(rows(run))
    assert threading.active_count() == len([thread for thread in threading.enumerate() if thread.name != "hardware"])
    last = rows(run)[-1]
    assert last.keys() == {"step", "time", "cpu", "cpu_of_run", "memory", "memory_of_run"}
    assert last["step"] == 7
    assert all(0 <= last[name] <= 100 for name in last.keys() - {"step", "time"})
    assert max(row["cpu_of_run"] for row in rows(run)) > 0
    assert 0 < last["memory_of_run"] < last["memory"]
    assert len(rows(run)) == n_rows


def test_without_nvidias_driver_the_gpu_is_left_out(run):
    with hardware.recorded(run, lambda: 1, gpu="GPU-00000000-0000-0000-0000-000000000000"):
        until(lambda: rows(run))
    assert "gpu" not in rows(run)[0]


def test_a_missing_folder_does_not_stop_the_recording(run, tmp_path):
    run.path.rename(tmp_path / "moved")
    with hardware.recorded(run, lambda: 1, gpu=None):
        threading.Event().wait(0.5)  # at least one row is lost
        (tmp_path / "moved").rename(run.path)
        until(lambda: rows(run))
