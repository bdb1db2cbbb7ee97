"""Writes a run for other experiment trackers, with their own libraries: finished for export.py, or as
its rows come.

`training.callbacks.other_trackers` starts this module as a program, a process per tracker.
"""

import csv
import json
import math
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from runs.run_folder import RunFolder
from runs.schema import checked
from runs.terminal import in_one_line

Rows = Iterable[Mapping[str, Any]]  # of metrics.jsonl
COLOR = re.compile(r"\x1b\[[0-9;]*m")
PROJECT = "folio"
READY = "ready"  # the answer of a process that waits for rows
# wandb and MLflow would contact their makers. They read these when they are imported.
os.environ["WANDB_ERROR_REPORTING"] = "false"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def to_csv(run: RunFolder, file: Path, rows: Rows) -> None:
    """One line per evaluation. The run's keys are columns with the same value in each line."""
    rows = list(rows)
    config = run.config()
    columns: dict[str, None] = {}
    for row in [*rows, config]:
        columns |= dict.fromkeys(row)
    with open(file, "w", newline="", encoding="utf-8") as output:
        writer = csv.DictWriter(output, list(columns))
        writer.writeheader()
        writer.writerows({**config, **row} for row in rows)


def to_live_csv(run: RunFolder, file: Path, rows: Rows) -> None:
    """The same, written anew with each row: a later row may have more columns."""
    so_far = list[Mapping[str, Any]]()
    for row in rows:
        so_far.append(row)
        to_csv(run, file, so_far)


def to_tensorboard(run: RunFolder, folder: Path, rows: Rows) -> None:
    """An event file: a scalar per number of a row; at the end the keys as hyperparameters, and the
    log with the samples as text."""
    from torch.utils.tensorboard import SummaryWriter

    config = run.config()
    began = run.about()["began"]
    best = math.inf
    # a TensorBoard that is open forgets what it has read of the run
    with SummaryWriter(str(folder), purge_step=0) as writer:
        for row in rows:
            checked(dict(row), {"wall_seconds": float}, str(run.metrics_path))
            for name, value in numbers(row):
                writer.add_scalar(
                    name, value, row["step"], walltime=began + row["wall_seconds"]
                )
            writer.flush()
            best = min(best, row["loss.valid"])

        settings = config | {
            key: str(value)
            for key, value in config.items()
            if not isinstance(value, int | float)
        }
        writer.add_hparams(settings, {"best loss.valid": best}, run_name=".")
        # Markdown of plain text
        writer.add_text("log", "    " + "    ".join(log(run).splitlines(keepends=True)))


def to_wandb(run: RunFolder, folder: Path, rows: Rows, mode: Any = "offline") -> None:
    """A folder for `wandb sync`. Nothing is sent, unless another `mode` of wandb is given."""
    import wandb

    folder.mkdir()
    settings = wandb.Settings(
        mode=mode,
        silent=True,
        x_disable_stats=True,
        console="off",
        disable_git=True,
    )
    about = {"project": PROJECT, "id": run.path.name, "name": run.about()["name"]}
    if mode == "online":
        about["resume"] = "allow"
    with wandb.init(
        **about, config=run.config(), dir=str(folder), settings=settings
    ) as tracked:
        for row in rows:
            if row["step"] >= tracked.starting_step:  # wandb has the earlier ones
                tracked.log(dict(numbers(row)), step=row["step"])
        (Path(tracked.dir) / "log.txt").write_text(log(run), encoding="utf-8")

    wandb.teardown()  # waits until wandb's own process has written everything


def to_live_wandb(run: RunFolder, folder: Path, rows: Rows) -> None:
    """Sends the rows, if the user is logged in."""
    import wandb

    default = "online" if wandb.login(prompt=False, verify=False) else "offline"
    to_wandb(run, folder, rows, os.environ.get("WANDB_MODE", default))


def to_mlflow(run: RunFolder, database: Path, rows: Rows) -> None:
    """A run on the server of MLFLOW_TRACKING_URI, or in a database that runs share."""
    import mlflow

    local = f"sqlite:///{database}"
    mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", local))
    mlflow.set_experiment(PROJECT)
    name = run.path.name
    of_this_run = f"tags.uuid = '{name}'"
    for earlier in mlflow.search_runs(None, of_this_run, output_format="list"):
        mlflow.delete_run(earlier.info.run_id)  # before the run was resumed
    about = run.about()
    with mlflow.start_run(run_name=about["name"], tags={"uuid": name}):
        mlflow.log_params(run.config())
        for row in rows:
            time = round(1_000 * (about["began"] + row["wall_seconds"]))
            mlflow.log_metrics(dict(numbers(row)), row["step"], timestamp=time)


def to_trackio(run: RunFolder, _: Path, rows: Rows) -> None:
    """A run in the user's folder of trackio, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL say."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    name = run.path.name
    if name in SQLiteStorage.get_runs(PROJECT):  # before the run was resumed
        SQLiteStorage.delete_run(PROJECT, name)
    options = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    tracked = trackio.init(PROJECT, name, config=run.config(), **options)
    for row in rows:
        tracked.log(dict(numbers(row)), step=row["step"])
    tracked.finish()


# with the place of what is written as rows come, from the folder of the run
TRACKERS: dict[str, tuple[Callable[..., None], str]] = {
    "tensorboard": (to_tensorboard, "tensorboard"),
    "wandb": (to_live_wandb, "wandb"),
    "trackio": (to_trackio, ""),
    "mlflow": (to_mlflow, "../../mlflow.db"),
    "csv": (to_live_csv, "rows.csv"),
}


def numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    return (
        (name, value) for name, value in row.items() if isinstance(value, int | float)
    )


def log(run: RunFolder) -> str:
    """The run's messages and samples, without colors."""
    if not run.log_path.exists():
        return ""
    return COLOR.sub("", run.log_path.read_text(encoding="utf-8", errors="replace"))


def arriving(run: RunFolder, answers: IO[str]) -> Iterator[dict[str, Any]]:
    """The rows that the run has, then the later ones of standard input."""
    rows = run.metrics()
    last = rows[-1]["step"] if rows else -1
    yield from rows
    print(READY, file=answers)
    os.nice(10)  # training comes first
    for row in map(json.loads, sys.stdin):
        if row["step"] > last:
            yield row


def main(name: str, folder: str) -> int:
    """Write the rows that arrive on standard input, one JSON object per line, to a tracker; returns
    the exit code. The answer on standard output is READY, and a line if the tracker fails."""
    run = RunFolder(Path(folder))
    track, place = TRACKERS[name]
    path = run.path / place
    if path.parent == run.path and path.exists():  # written again from its first row
        path.unlink() if path.is_file() else shutil.rmtree(path)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print
    try:
        track(run, path, arriving(run, answers))
    except ModuleNotFoundError as error:
        install = "pip install -r requirements-trackers.txt"
        print(f"{error.name} is not installed: {install}", file=answers)
        return 1
    except Exception as error:
        traceback.print_exc()
        print(in_one_line(str(error) or type(error).__name__), file=answers)
        return 1
    return 0


if __name__ == "__main__":
    # everything is written: exit handlers of the libraries could hang
    os._exit(main(*sys.argv[1:]))
