"""The lock of a run's folder, and the run's last sign of life."""

import os
import time

import pytest

from runs.run_folder import RunFolder


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_the_lock_is_seen_while_it_is_held_and_looking_does_not_take_it(run):
    assert not run.is_locked()  # there is no file
    with run.locked():
        assert run.is_locked()
        with pytest.raises(ValueError, match="another process"), run.locked():
            pass
    for _ in range(100):
        assert not run.is_locked()
        with run.locked():
            pass


def test_a_pipe_in_place_of_the_lock_does_not_block(run):
    os.mkfifo(run.path / "lock")
    assert not run.is_locked()


def test_the_last_sign_of_life_is_that_of_the_files_unless_the_run_trains(run):
    run.append_log("a line")
    run.save_status("in progress")
    for path in (run.log_path, run.status_path):
        os.utime(path, (1_000.0, 1_000.0))
    assert run.last_heard() == 1_000.0
    with run.locked():
        assert run.last_heard() > time.time() - 60


def test_a_checkpoint_without_the_size_of_hardware_jsonl_removes_its_rows(run):
    """Checkpoints of earlier versions have no such size."""
    run.append_hardware({"step": 1, "cpu": 50.0})
    sizes = run.sizes()
    run.append_hardware({"step": 2, "cpu": 50.0})
    run.truncate(sizes)
    assert run.hardware_path.stat().st_size == sizes["hardware.jsonl"]
    run.truncate({name: size for name, size in sizes.items() if name != "hardware.jsonl"})
    assert run.hardware_path.read_text() == ""
