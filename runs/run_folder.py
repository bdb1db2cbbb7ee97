"""The files of a run: `logs/<experiment>/<uuid>/`."""

import fcntl
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from runs.files import append_line, write_atomically


class RunFolderError(ValueError):
    """A run's folder cannot be written or read; the message is one line for the user."""


class RunFolder:
    """Reads and writes the files of one run; everything is written under a temporary name and renamed."""

    def __init__(self, path: Path):
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.events_path = path / "events.jsonl"
        self.log_path = path / "log.txt"
        self.about_path = path / "about.json"
        self.status_path = path / "status.json"
        self.config_path = path / "config.yaml"
        self.corpus_path = path / "corpus.json"
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
        try:
            config = yaml.safe_load(_read(self.config_path))
        except yaml.YAMLError as error:
            raise RunFolderError(f"{self.path} is not a whole run: config.yaml is not YAML") from error
        if not isinstance(config, dict):
            raise RunFolderError(f"{self.path} is not a whole run: config.yaml holds no keys")
        return config

    def save_about(self, name: str, comment: str, overridden: Iterable[str]) -> None:
        """Write what tells this run from others: its name, what was set, and when it began."""
        about = {"name": name, "comment": comment, "overridden": list(overridden), "began": time.time()}
        write_atomically(self.about_path, (json.dumps(about) + "\n").encode())

    def about(self) -> dict[str, Any]:
        """What a dashboard shows of the run beside its curves: name, comment, time, configs and which of them were set,
        and the masking rates of its stages."""
        about, config = _mapping(self.about_path), self.config()
        missing = {"name", "comment", "overridden"} - set(about) | {"training.stages", "masking.masking_prob"} - set(
            config
        )
        if missing:
            raise RunFolderError(f"{self.path} is not a whole run: it has no {sorted(missing)[0]}")
        rates = {row.get("masking_prob", config["masking.masking_prob"]) for row in config["training.stages"]}
        by_hand = [event for event in self.events() if event["event"] == "changed by hand"]
        if by_hand:
            config = {"changed_by_hand": f"from step {by_hand[-1]['step']}: {by_hand[-1]['after']}"} | config
            about["comment"] += " (changed by hand)"
        status = self.status()
        if status["status"] == "crashed":
            about["comment"] = f"failed: {status['details']} | {about['comment']}"
        shown = {"name": f"{about['name']}, {Path(self.corpus()['name']).name}", "configs": config}
        return about | shown | {"explicit": about["overridden"], "rates": sorted(rates)}

    def save_status(self, status: str, details: str = "") -> None:
        """Write how the run is: in progress, completed, crashed or interrupted, and why."""
        content = {"status": status, "details": details, "time": time.time()}
        write_atomically(self.status_path, (json.dumps(content) + "\n").encode())

    def status(self) -> dict[str, Any]:
        """What `save_status` wrote."""
        return _mapping(self.status_path)

    def append_event(self, event: dict[str, Any]) -> None:
        """Add something that happened, such as a change by hand, to events.jsonl."""
        append_line(self.events_path, json.dumps(event))

    def events(self) -> list[dict[str, Any]]:
        """All that happened, oldest first."""
        return [json.loads(line) for line in _read(self.events_path).splitlines()] if self.events_path.exists() else []

    def append_log(self, line: str) -> None:
        """Add a line of text to log.txt, for people."""
        append_line(self.log_path, line)

    def save_corpus(self, name: str, sha256: str) -> None:
        """Write which text the run is trained on; the hash tells whether a text is still the same."""
        write_atomically(self.corpus_path, (json.dumps({"name": name, "sha256": sha256}) + "\n").encode())

    def corpus(self) -> dict[str, str]:
        """The `name` and `sha256` of the text that the run was trained on."""
        return _mapping(self.corpus_path)

    def save_reference_lines(self, lines: Mapping[str, float]) -> None:
        """Write the losses that the run's own are compared with, by name, in nats."""
        write_atomically(self.reference_lines_path, (json.dumps(dict(lines), indent=2) + "\n").encode())

    def reference_lines(self) -> dict[str, float]:
        """The losses that the run's own are compared with, by name, in nats."""
        return _mapping(self.reference_lines_path)

    def sizes(self) -> dict[str, int]:
        """How many bytes the files have that grow: what a resumed run cuts them to."""
        return {path.name: path.stat().st_size for path in self._growing() if path.exists()}

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Segmenter the files that grow to what they were when `sizes` was taken."""
        for path in self._growing():
            if path.exists():
                write_atomically(path, path.read_bytes()[: sizes.get(path.name, 0)])

    def _growing(self) -> tuple[Path, ...]:
        return self.metrics_path, self.events_path, self.log_path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The time in which one process trains this run. Raises RunFolderError where another one does.

        The lock is the operating system's: it ends with the process, however that ends.
        """
        with open(self.path / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"{self.path} is being trained by another process right now") from error
            yield

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one evaluation to metrics.jsonl, in one write. What is not a number is null there: JSON has no NaN."""
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        append_line(self.metrics_path, json.dumps(finite))

    def metrics(self) -> list[dict[str, Any]]:
        """All evaluations so far, oldest first."""
        if not self.metrics_path.exists():
            return []
        lines = _read(self.metrics_path).splitlines()
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise RunFolderError(f"{self.path} is not a whole run: metrics.jsonl is damaged") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{path.parent} is not a whole run: cannot read {path.name}") from error


def _mapping(path: Path) -> dict[str, Any]:
    """A JSON object. Raises RunFolderError."""
    text = _read(path)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise RunFolderError(f"{path.parent} is not a whole run: {path.name} is not JSON") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path.parent} is not a whole run: {path.name} holds no object")
    return content
