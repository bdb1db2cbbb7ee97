"""Converts a run's metrics, keys, samples and log for other experiment trackers, with their own
libraries."""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs.run_folder import RunFolder
from runs.schema import checked

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def to_csv(run: RunFolder, file: Path) -> None:
    """One line per evaluation. The run's keys are columns with the same value in each line."""
    rows = run.metrics()
    config = run.config()
    columns: dict[str, None] = {}
    for row in [*rows, config]:
        columns |= dict.fromkeys(row)
    with open(file, "w", newline="", encoding="utf-8") as output:
        writer = csv.DictWriter(output, list(columns))
        writer.writeheader()
        writer.writerows({**config, **row} for row in rows)


def to_tensorboard(run: RunFolder, folder: Path) -> None:
    """An event file: a scalar per number of a row, the keys as hyperparameters, the log with the
    samples as text."""
    from torch.utils.tensorboard import SummaryWriter

    config = run.config()
    began = run.about()["began"]
    rows = run.metrics()
    for row in rows:
        checked(row, {"wall_seconds": float}, str(run.metrics_path))
    with SummaryWriter(str(folder)) as writer:
        for row in rows:
            for name, value in numbers(row):
                writer.add_scalar(
                    name, value, row["step"], walltime=began + row["wall_seconds"]
                )

        settings = config | {
            key: str(value)
            for key, value in config.items()
            if not isinstance(value, int | float)
        }
        best = min((row["loss.valid"] for row in rows), default=math.nan)
        writer.add_hparams(settings, {"best loss.valid": best}, run_name=".")
        # Markdown of plain text
        writer.add_text("log", "    " + "    ".join(log(run).splitlines(keepends=True)))


def to_wandb(run: RunFolder, folder: Path) -> None:
    """A folder for `wandb sync`. Nothing is sent."""
    import wandb

    folder.mkdir()
    settings = wandb.Settings(
        mode="offline",
        silent=True,
        x_disable_stats=True,
        console="off",
        disable_git=True,
    )
    about = {"project": "folio", "id": run.path.name, "name": run.about()["name"]}
    with wandb.init(
        **about, config=run.config(), dir=str(folder), settings=settings
    ) as tracked:
        for row in run.metrics():
            tracked.log(dict(numbers(row)), step=row["step"])
        (Path(tracked.dir) / "log.txt").write_text(log(run), encoding="utf-8")

    wandb.teardown()  # waits until wandb's own process has written everything


def numbers(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    return (
        (name, value) for name, value in row.items() if isinstance(value, int | float)
    )


def log(run: RunFolder) -> str:
    """The run's messages and samples, without colors."""
    if not run.log_path.exists():
        return ""
    return COLOR.sub("", run.log_path.read_text(encoding="utf-8", errors="replace"))
