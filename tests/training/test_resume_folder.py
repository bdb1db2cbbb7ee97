"""Resumes runs whose folder was moved or damaged, in this process."""

import os
import shutil

import pytest

from experiment import main
from runs.run_folder import RunFolder


@pytest.fixture
def run(train, tmp_path, corpus_file) -> RunFolder:
    """A run of two steps with two evaluations."""
    logs = tmp_path / "logs"
    return train(
        data__corpus=str(corpus_file), logs=str(logs), training__max_steps=2, folder=logs / "mlm" / "0123456789ab"
    ).run


@pytest.mark.parametrize("target", ["archive/0123456789ab", "renamed"])
def test_a_moved_run_resumes_in_its_own_folder_as_often_as_wanted(run, tmp_path, capsys, target):
    moved = tmp_path / "logs" / target
    moved.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run.path, moved)
    run.path.mkdir()
    (run.path / "run.pid").write_text("1")  # as an earlier version of Folio left it
    for steps in (4, 6):
        assert main(["--resume", str(moved), f"training.max_steps={steps}"]) == 0, capsys.readouterr().err
        assert RunFolder(moved).metrics()[-1]["step"] == steps
    assert [path.name for path in run.path.iterdir()] == ["run.pid"]
    assert "name: mlm" in (moved / "run.yaml").read_text()


def test_half_a_row_that_a_checkpoint_counts_is_refused_before_training(run, capsys):
    os.truncate(run.metrics_path, run.metrics_path.stat().st_size - 60)
    files = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file() and path.name != "lock"}
    capsys.readouterr()
    assert main(["--resume", str(run.path), "training.max_steps=4"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "metrics.jsonl is damaged" in error
    assert {path: path.read_bytes() for path in files} == files


def test_half_a_row_after_the_checkpoint_is_dropped(run):
    before = run.metrics()
    with open(run.metrics_path, "ab") as file:
        file.write(b'{"step": 3, "lo')
    assert main(["--resume", str(run.path), "training.max_steps=4"]) == 0
    assert run.metrics()[: len(before)] == before
    assert run.metrics()[-1]["step"] == 4
