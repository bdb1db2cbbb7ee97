"""Rows reach other trackers as they come, and no tracker stops a run."""

import csv
import signal
import struct
import subprocess
import sys

import pytest

import experiment
from runs.files import ROOT, to_json
from tests.conftest import config_file, only_run, slow, written

OWN_CALLBACKS = """
import os, signal

class KillsTrackers:
    def evaluated(self, trainer, row, best):
        for callback in trainer.callbacks:
            if getattr(callback, "process", None):
                callback.process.kill()
                callback.process.wait()

class Dies:
    def evaluated(self, trainer, row, best):
        if row["step"] == 6:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def words(tmp_path, text_file, monkeypatch):
    """The words of a run of 8 steps with 4 rows, for a tracker."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    own = written(tmp_path / "own.py", OWN_CALLBACKS)
    config = config_file(
        tmp_path,
        {
            "data.corpus": str(text_file),
            "training.max_steps": 8,
            "training.evaluations": 4,
            "checkpoint.every_seconds": 1e-6,
        },
    )

    def words(tracker, callback=None):
        callbacks = f"[{own}:{callback}]" if callback else "[]"
        also = f"tracking.also=[{tracker}]"
        return ["--config", config, also, f"callbacks={callbacks}"]

    return words


def steps_in_csv(run):
    with open(run.path / "rows.csv", newline="", encoding="utf-8") as file:
        return [
            (int(row["step"]), float(row["loss.valid"])) for row in csv.DictReader(file)
        ]


def steps_in_tensorboard(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    return [(each.step, each.value) for each in events.Scalars("loss.valid")]


def records_of(content):
    """The records of a file of wandb: LevelDB's log format, in blocks of 32 kB after a header."""
    record = b""
    position = 7
    while position + 7 <= len(content):
        left = 32_768 - position % 32_768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        record += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def steps_in_wandb(run):
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = (run.path / "wandb").rglob("*.wandb")
    steps = []
    for content in records_of(file.read_bytes()):
        items = Record.FromString(content).history.item
        row = {each.key or ".".join(each.nested_key): each.value_json for each in items}
        if "loss.valid" in row:
            steps.append((int(row["step"]), float(row["loss.valid"])))
    return steps


def steps_in_mlflow(run):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run.path.parents[1] / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("folio")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.data.params["model.d_model"] == "32"
    history = client.get_metric_history(tracked.info.run_id, "loss.valid")
    return [(each.step, each.value) for each in history]


def steps_in_trackio(run):
    from trackio.sqlite_storage import SQLiteStorage

    logs = SQLiteStorage.get_logs("folio", run.path.name)
    return [(each["step"], each["loss.valid"]) for each in logs]


READERS = {
    "csv": steps_in_csv,
    "tensorboard": steps_in_tensorboard,
    "wandb": steps_in_wandb,
    "mlflow": steps_in_mlflow,
    "trackio": steps_in_trackio,
}


@pytest.mark.parametrize(
    "tracker", ["tensorboard", *slow("wandb", "mlflow", "trackio")]
)
def test_a_tracker_has_each_row_once_also_after_a_crash(
    tracker, words, tmp_path, fork_server, printed
):
    """The run dies after its third row, and resumes at a checkpoint before it."""
    if tracker != "csv":
        pytest.importorskip(tracker)
    program = fork_server.start(["experiment.py", *words(tracker, "Dies")])

    assert program.wait(120) == -signal.SIGKILL

    run = only_run(tmp_path / "logs")
    output = printed(experiment.main, "--resume", run.path, "callbacks=[]")
    expected = [(row["step"], row["loss.valid"]) for row in run.metrics()]

    assert "tracking.also" not in output
    assert [step for step, _ in expected] == [2, 4, 6, 8]

    steps = READERS[tracker](run)
    assert [step for step, _ in steps] == [2, 4, 6, 8]
    assert [loss for _, loss in steps] == pytest.approx([loss for _, loss in expected])


def test_a_killed_tracker_costs_a_line(words, tmp_path, printed):
    output = printed(experiment.main, *words("csv", "KillsTrackers"))

    assert output.count("tracking.also: csv: it has ended; the run goes on") == 1
    assert len(only_run(tmp_path / "logs").metrics()) == 4


def test_a_missing_tracker_costs_a_line(words, tmp_path, printed, monkeypatch):
    (tmp_path / "packages").mkdir()
    missing = "raise ModuleNotFoundError('no', name='wandb')"
    written(tmp_path / "packages" / "wandb.py", missing)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    output = printed(experiment.main, *words("wandb"))
    install = "wandb is not installed: pip install -r requirements-trackers.txt"

    assert output.count(f"tracking.also: wandb: {install}; the run goes on") == 1


def test_a_tracker_that_hangs_costs_a_line(words, tmp_path, printed, monkeypatch):
    """It neither starts nor ends."""
    (tmp_path / "packages").mkdir()
    hanging = "import signal; signal.pause()"
    written(tmp_path / "packages" / "wandb.py", hanging)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    for name in ("SECONDS_TO_START", "SECONDS_TO_END"):
        monkeypatch.setattr(f"training.callbacks.other_trackers.{name}", 0.1)
    output = printed(experiment.main, *words("wandb"))

    assert output.count("tracking.also: wandb: it does not answer; the run") == 1


def test_a_tracker_that_is_slow_to_start_gets_each_row_once(train):
    """It finds rows in the file of the run that are waiting for it too."""
    run = train(training__max_steps=8, training__evaluations=4).run
    waiting = "".join(f"{to_json(row)}\n" for row in run.metrics())
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(lines[:3]))

    words = [sys.executable, "-m", "training.trackers", "csv", str(run.path)]
    program = subprocess.run(
        words, input=waiting, cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert program.stdout == "ready\n"
    assert [step for step, _ in steps_in_csv(run)] == [2, 4, 6, 8]


def test_an_unknown_tracker_is_refused(words, refusal):
    assert "tracking.also: visdom is not one of" in refusal(
        experiment.main, *words("visdom"), before=""
    )
