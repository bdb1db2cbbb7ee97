"""A run that was interrupted ends as one that was not: the same weights, bit for bit, and the same rows."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from configs.command_line import parse
from configs.keys import ConfigError
from runs.run_folder import RunFolder
from tests.conftest import ROOT, TINY
from training.checkpoint import load_weights

TIMES = ("seconds", "wall_seconds", "chars_per_second")
KEYS = TINY | {
    "training.max_steps": 120,
    "training.evaluations": 6,
    "training.stages": [{"until": 0.4, "seq_len": 32, "masking_prob": 0.3}, {"until": 1.0, "seq_len": 64}],
    "checkpoint.every_seconds": 0.05,
    "model.dropout": 0.1,
    "seed": 3,
}


class Runs:
    """Starts runs of experiment.py as a user does, and looks at what they leave."""

    def __init__(self, folder: Path, corpus: Path, keys: dict):
        self.folder = folder
        self.config = folder / "keys.yaml"
        self.config.write_text(yaml.safe_dump(KEYS | {"data.corpus": str(corpus), "logs": str(folder / "logs")} | keys))

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "experiment.py", *(arguments or ("--config", str(self.config)))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, *arguments: str) -> tuple[RunFolder, str]:
        """Start a run and wait for its end."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return self.newest(), output

    def newest(self) -> RunFolder:
        return RunFolder(max((self.folder / "logs" / "mlm").iterdir(), key=lambda path: path.stat().st_ctime))

    def resume(self, run: RunFolder, *keys: str) -> str:
        return self.finish("--resume", str(run.path), *keys)[1]

    def interrupt(self, number: int, after_rows: int, *arguments: str) -> tuple[RunFolder, str, int]:
        """Start a run and send it a signal once it has so many rows."""
        process = self.start(*arguments)
        deadline = time.monotonic() + 120
        known = set((self.folder / "logs" / "mlm").glob("*")) if not arguments else set()
        while process.poll() is None and time.monotonic() < deadline:
            new = [path for path in (self.folder / "logs" / "mlm").glob("*") if path not in known]
            if new and (new[0] / "metrics.jsonl").exists() and len(RunFolder(new[0]).metrics()) >= after_rows:
                break
            threading.Event().wait(0.005)
        process.send_signal(number)
        output, _ = process.communicate(timeout=120)
        return RunFolder(new[0]), output, process.returncode


def check_same(one: RunFolder, other: RunFolder) -> None:
    weights = [load_weights(run.checkpoints / "last.safetensors") for run in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    rows = [[{k: v for k, v in row.items() if k not in TIMES} for row in run.metrics()] for run in (one, other)]
    assert rows[0] == rows[1]


def test_after_ctrl_c_a_run_goes_on_to_the_digit(tmp_path, corpus_file, monkeypatch):
    """With keys whose future takes more than the weights; others: `test_resume_in_process`."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    keys = {"training.grad_accum_steps": 2, "data.sampling": "shuffled", "masking.strategy": "adaptive"}
    runs = Runs(tmp_path, corpus_file, keys)
    whole, _ = runs.finish()
    run, output, code = runs.interrupt(signal.SIGINT, after_rows=2)
    assert code == 130
    assert f"python experiment.py --resume {run.path.name}" in output
    output = runs.resume(run)
    assert "resuming at step" in output
    check_same(whole, run)
    assert run.events()[0]["event"] == "resumed"


def test_compiled_and_after_sigterm(tmp_path, corpus_file, monkeypatch):
    """With several threads too, in whichever order they arrive: see `model.embedding`."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    stages = [{"until": 1.0, "seq_len": 32}]  # a single shape: compilation takes its time
    runs = Runs(tmp_path, corpus_file, {"training.compile": True, "training.stages": stages, "model.n_layers": 1})
    whole, _ = runs.finish()
    run, _, code = runs.interrupt(signal.SIGTERM, after_rows=3)
    assert code == 143
    runs.resume(run)
    check_same(whole, run)


def test_killed_again_and_again_at_random_moments(tmp_path, corpus_file):
    """kill -9, five times over, wherever the run is: it starts, trains, evaluates or saves."""
    runs = Runs(tmp_path, corpus_file, {"checkpoint.every_seconds": 0.01})
    whole, _ = runs.finish()
    run, _, code = runs.interrupt(signal.SIGKILL, after_rows=1)
    assert code == -9
    generator = random.Random(0)
    for _ in range(4):
        process = runs.start("--resume", str(run.path))
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("resuming at step"):
                break
        threading.Event().wait(generator.uniform(0.0, 1.5))
        process.kill()
        process.communicate()
    if run.status()["status"] != "completed":
        runs.resume(run)
    check_same(whole, run)


@pytest.fixture
def finished(tmp_path, corpus_file, train) -> RunFolder:
    """A run that ended after two steps, where --resume finds it."""
    logs = tmp_path / "logs"
    return train(
        data__corpus=str(corpus_file), logs=str(logs), training__max_steps=2, folder=logs / "mlm" / "0123456789ab"
    ).run


def test_a_longer_budget_is_the_future_and_is_written_down(finished, tmp_path, corpus_file):
    runs = Runs(tmp_path, corpus_file, {})
    finished.save_status("completed")
    process = runs.start("--resume", str(finished.path))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "has spent its budget" in output
    older = {key: value for key, value in finished.config().items() if key != "training.muon_momentum"}
    finished.config_path.write_text(yaml.safe_dump(older))  # of a time that did not know this key
    runs.resume(finished, "training.max_steps=40")
    assert finished.metrics()[-1]["step"] == 40
    assert finished.config()["training.max_steps"] == 40
    assert finished.config()["training.muon_momentum"] == 0.95
    assert finished.events()[-1]["changed"] == {"training.max_steps": [2, 40]}


def test_a_run_that_was_killed_after_its_last_step_is_brought_to_its_end(finished, tmp_path, corpus_file):
    """All is trained and saved; the picture and the word that it is done are still missing."""
    run = finished
    rows, weights = run.metrics(), (run.checkpoints / "last.safetensors").read_bytes()
    run.save_status("in progress")
    run.curves_path.unlink()
    Runs(tmp_path, corpus_file, {}).resume(run)
    assert run.curves_path.exists()
    assert run.status()["status"] == "completed"
    assert run.metrics() == rows
    assert (run.checkpoints / "last.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (["model.d_model=64"], ["model.d_model (it is 32)"]),
        (["seed=9", "masking.masking_prob=0.4"], ["seed", "masking.masking_prob"]),
        (["data.corpus=play"], ["data.corpus"]),
        (["training.learning_rate=0.1"], ["training.learning_rate"]),
    ],
)
def test_a_changed_past_is_refused_with_the_names_of_the_keys(finished, keys, named):
    with pytest.raises(ConfigError, match="a resumed run cannot change") as caught:
        parse(["--resume", str(finished.path), "training.max_steps=9", *keys])
    assert all(name in str(caught.value) for name in named)
    assert "max_steps" not in str(caught.value)


def resumed(run: RunFolder, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "experiment.py", "--resume", str(run.path), "training.max_steps=4"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(finished, tmp_path):
    assert resumed(finished).returncode == 0  # now there are two
    (finished.checkpoints / "last.pt").write_bytes(b"scribble")
    result = resumed(finished)
    assert result.returncode == 0, result.stderr
    assert "warning: the last checkpoint is damaged" in result.stdout
    assert "resuming at step 2" in result.stdout


@pytest.mark.parametrize("what", ["text changed", "no checkpoint", "another model's", "config is no mapping"])
def test_what_cannot_go_on_says_why_in_one_line(finished, corpus_file, what):
    if what == "text changed":
        corpus_file.write_text(corpus_file.read_text() + "more")
    elif what == "no checkpoint":
        for path in finished.checkpoints.iterdir():
            path.unlink()
    elif what == "another model's":
        config = finished.config() | {"model.d_model": 64}
        finished.save_config(config)
    else:
        finished.config_path.write_text("- 1\n- 2\n")
    result = resumed(finished)
    assert result.returncode == 2, result.stdout
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_a_run_that_trains_is_not_trained_twice(finished):
    with finished.locked():
        result = resumed(finished)
    assert result.returncode == 2
    assert "by another process right now" in result.stderr


def test_another_number_of_threads_is_warned_about(finished):
    result = resumed(finished, OMP_NUM_THREADS="2")
    assert result.returncode == 0
    assert "threads was 1, is 2" in result.stdout


def test_two_runs_that_start_in_the_same_second_are_two_runs(tmp_path, corpus_file):
    runs = Runs(tmp_path, corpus_file, {"training.max_steps": 2})
    processes = [runs.start(), runs.start()]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    folders = list((tmp_path / "logs" / "mlm").iterdir())
    assert len(folders) == 2
    assert all(RunFolder(path).metrics()[-1]["step"] == 2 for path in folders)
