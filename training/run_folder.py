"""The files of a run: `logs/<experiment>/<uuid>/`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


class RunFolderError(ValueError):
    """A run's folder cannot be written or read; the message is one line for the user."""


class RunFolder:
    """Reads and writes the files of one run; everything is written under a temporary name and renamed."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.config_path = path / "config.yaml"
        self.vocabulary_path = path / "vocabulary.json"
        self.reference_lines_path = path / "reference_lines.json"
        self.curves_path = path / "curves.png"
        self.checkpoints = path / "checkpoints"

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make the folder of a new run. Raises RunFolderError where that cannot be."""
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RunFolderError(f"cannot write to {path} ({error.strerror or error}): set logs to a folder") from error
        return cls(path)

    def save_config(self, values: dict[str, Any]) -> None:
        """Write every resolved key: `--config` with this file repeats the run."""
        write_atomically(self.config_path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode())

    def config(self) -> dict[str, Any]:
        """Every key of the run with its value."""
        return yaml.safe_load(self.config_path.read_text(encoding="utf-8"))

    def save_reference_lines(self, lines: Mapping[str, float]) -> None:
        """Write the losses that the run's own are compared with, by name, in nats."""
        write_atomically(self.reference_lines_path, (json.dumps(dict(lines), indent=2) + "\n").encode())

    def reference_lines(self) -> dict[str, float]:
        """The losses that the run's own are compared with, by name, in nats."""
        return json.loads(self.reference_lines_path.read_text(encoding="utf-8"))

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one evaluation to metrics.jsonl, in one write: a reader never sees half a line but the last."""
        with open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All evaluations so far, oldest first."""
        if not self.metrics_path.exists():
            return []
        with open(self.metrics_path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment `path` is the old content or the new, whole on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
