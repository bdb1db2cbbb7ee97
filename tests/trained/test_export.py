"""`python export.py`, in process."""

import csv
import os
import stat
import sys

import pytest
from wandb import env

from export import main
from tests.conftest import written
from training.trackers import log, to_tensorboard, to_wandb


def words(trained, *others):
    return [str(trained.run.path), "--to", *map(str, others)]


def test_a_failure_leaves_nothing(plain, tmp_path, monkeypatch):
    def broken(run, path):
        path.write_text("half")
        raise RuntimeError("no power")

    monkeypatch.setitem(main.__globals__["FORMATS"], "csv", broken)

    with pytest.raises(RuntimeError, match="no power"):
        main(words(plain, "csv", tmp_path / "rows.csv"))

    assert list(tmp_path.glob("*rows*")) == list(tmp_path.glob(".export*")) == []


def test_what_exists_is_never_replaced(plain, tmp_path, refusal):
    (tmp_path / "rows.csv").write_text("mine")

    assert "exists already" in refusal(
        main, *words(plain, "csv", tmp_path / "rows.csv")
    )
    assert (tmp_path / "rows.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "others", [("pickle", "x"), ("csv", ""), ("csv", "/proc/x"), ("csv", "/proc/x/y")]
)
def test_wrong_input_is_one_line(plain, refusal, others):
    assert f"--to {others[0]}" in refusal(main, *words(plain, *others))


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_every_file_has_the_usual_mode(plain, tmp_path, umask):
    before = os.umask(umask)
    try:
        assert main(words(plain, "huggingface", tmp_path / "model")) == 0
    finally:
        os.umask(before)

    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]

    assert "model.safetensors" in {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


@pytest.mark.parametrize(
    ("name", "library"), [("huggingface", "tokenizers"), ("wandb", "wandb")]
)
def test_a_missing_library_is_one_line(
    plain, tmp_path, refusal, monkeypatch, name, library
):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "trained.hugging_face", raising=False)
    monkeypatch.delattr("trained.hugging_face", raising=False)

    line = refusal(main, *words(plain, name, tmp_path / "x"))

    assert f"{library} is not installed: pip install -r requirements-export.txt" in line


def test_csv_has_a_line_per_evaluation_with_the_keys_and_its_path_is_printed(
    plain, tmp_path, printed
):
    path = tmp_path / "new" / "rows.csv"

    assert printed(main, *words(plain, "csv", path)).strip() == str(path)
    assert [each.name for each in path.parent.iterdir()] == ["rows.csv"]

    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    losses = [float(row["loss.valid"]) for row in rows]

    assert losses == [row["loss.valid"] for row in plain.run.metrics()]
    assert {row["model.d_model"] for row in rows} == {"32"}


def test_tensorboard_reads_the_rows_and_the_keys(plain, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    to_tensorboard(plain.run, tmp_path / "board", plain.run.metrics())
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()

    for scalar, row in zip(
        events.Scalars("loss.valid"), plain.run.metrics(), strict=True
    ):
        assert scalar.step == row["step"]
        assert scalar.value == pytest.approx(row["loss.valid"])

    assert "_hparams_/session_start_info" in events.summary_metadata


def test_wandb_writes_an_offline_run(plain, tmp_path):
    to_wandb(plain.run, tmp_path / "wandb", plain.run.metrics())
    (file,) = tmp_path.rglob("*.wandb")
    (text,) = tmp_path.rglob("offline-run-*/files/log.txt")

    assert text.read_text() == log(plain.run)

    content = file.read_bytes()
    for part in ("loss.valid", "model.d_model", plain.run.path.name):
        assert part.encode() in content


def test_libraries_contact_nobody(tmp_path, fork_server):
    program = fork_server.start(
        [str(written(tmp_path / "program.py", "import trained.onnx_file"))]
    )

    assert program.wait(60) == 0
    # where onnxruntime keeps the number by which it reports a device
    assert not (tmp_path / "home" / ".cache" / "Microsoft").exists()
    assert not env.error_reporting_enabled()


def test_the_log_has_no_colors(plain):
    plain.run.append_log("\x1b[32mgreen\x1b[0m")

    assert "green" in log(plain.run).splitlines()[-1]
    assert "\x1b" not in log(plain.run)
