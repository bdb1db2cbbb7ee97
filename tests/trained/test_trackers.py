import csv

import pytest

from trained.trackers import log, to_csv, to_tensorboard, to_wandb


def test_csv_has_a_line_per_evaluation_with_the_keys(plain, tmp_path):
    to_csv(plain.run, tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss.valid"]) for row in rows] == [row["loss.valid"] for row in plain.run.metrics()]
    assert {row["model.d_model"] for row in rows} == {"32"}


def test_tensorboard_reads_the_rows_and_the_keys(plain, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    to_tensorboard(plain.run, tmp_path / "board")
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    rows = plain.run.metrics()
    scalars = events.Scalars("loss.valid")
    assert [scalar.step for scalar in scalars] == [row["step"] for row in rows]
    assert [scalar.value for scalar in scalars] == pytest.approx([row["loss.valid"] for row in rows])
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_wandb_writes_an_offline_run(plain, tmp_path):
    to_wandb(plain.run, tmp_path / "wandb")
    (file,) = tmp_path.rglob("*.wandb")
    (text,) = tmp_path.rglob("offline-run-*/files/log.txt")
    assert text.read_text() == log(plain.run)
    content = file.read_bytes()
    assert b"loss.valid" in content
    assert b"model.d_model" in content
    assert plain.run.path.name.encode() in content


def test_the_log_has_no_colors(plain):
    plain.run.append_log("\x1b[32mgreen\x1b[0m")
    assert "green" in log(plain.run).splitlines()[-1]
    assert "\x1b" not in log(plain.run)
