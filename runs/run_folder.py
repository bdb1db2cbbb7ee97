"""The files of a run: `logs/<experiment>/<uuid>/`."""

import fcntl
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from runs.files import append_line, flush, read_bytes, to_json, write_atomically, write_json
from runs.schema import ABOUT, CORPUS, EVENT, GROWING, ROW, SHOWN_CONFIG, SIZES, STATUS, VOCABULARY, checked


class RunFolderError(ValueError):
    """A run's folder cannot be written or read; the message is one line for the user."""


class RunFolder:
    """Reads and writes the files of one run.

    A file is replaced as a whole or grows by whole lines. Writing raises OSError. Reading raises RunFolderError with
    one line that names the file, if a file is missing or its content does not match its schema (`runs.schema`).
    """

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
        self._growing = [path / name for name in GROWING]

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Create the folder of a new run. Raises RunFolderError if that is not possible."""
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RunFolderError(f"cannot write to {path} ({error.strerror}): set logs to a folder") from error
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run while this process trains it. Raises RunFolderError if another process holds the lock.

        The operating system holds the lock and releases it when the process ends, however it ends.
        """
        with open(self.path / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunFolderError(f"{self.path} is being trained by another process right now") from error
            yield

    def save_config(self, values: dict[str, Any]) -> None:
        """Write every resolved key; `--config` with this file repeats the run."""
        write_atomically(self.config_path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode())

    def config(self) -> dict[str, Any]:
        """Every key of the run with its value."""
        try:
            return checked(yaml.safe_load(_read(self.config_path)), {}, str(self.config_path), RunFolderError)
        except (yaml.YAMLError, RecursionError) as error:
            raise RunFolderError(f"{self.config_path} is damaged: it is not YAML") from error

    def save_about(self, name: str, comment: str, overridden: Iterable[str]) -> None:
        """Write the run's name, a comment, the keys that the user set, and the time when it began."""
        about = {"name": name, "comment": comment, "overridden": list(overridden), "began": time.time()}
        write_json(self.about_path, about)

    def about(self) -> dict[str, Any]:
        """What a dashboard shows of the run in addition to its curves.

        These are its name, comment, time, configs, the keys that the user set, and the masking rates of its stages.
        """
        about, status, events = _object(self.about_path, ABOUT), self.status(), self.events()
        config = checked(self.config(), SHOWN_CONFIG, str(self.config_path), RunFolderError)
        rates = {row.get("masking_prob", config["masking.masking_prob"]) for row in config["training.stages"]}
        by_hand = [event for event in events if event["event"] == "changed by hand"]
        if by_hand:
            config = {"changed_by_hand": f"from step {by_hand[-1]['step']}: {by_hand[-1].get('after')}"} | config
            about["comment"] += " (changed by hand)"
        if status["status"] == "crashed":
            about["comment"] = f"failed: {status['details']} | {about['comment']}"
        shown = {"name": f"{about['name']}, {Path(self.corpus()['name']).name}", "configs": config}
        return about | shown | {"explicit": about["overridden"], "rates": sorted(rates)}

    def command(self) -> str:
        """The command that started the run, for a shell."""
        about, config = _object(self.about_path, ABOUT), self.config()
        words = [f"{key}={config[key]}" for key in about["overridden"] if key in config and key != "logs"]
        return " ".join(
            ["python experiment.py", f"--{' '.join(about['comment'].split()[:2])}", *map(shlex.quote, words)]
        )

    def save_status(self, status: str, details: str = "") -> None:
        """Write the state of the run (see `runs.schema.STATUSES`) and its reason."""
        write_json(self.status_path, {"status": status, "details": details, "time": time.time()})

    def status(self) -> dict[str, Any]:
        """The `status` of the run, and `details`."""
        return _object(self.status_path, STATUS)

    def save_corpus(self, name: str, sha256: str) -> None:
        """Write the name and the hash of the text that the run trains on."""
        write_json(self.corpus_path, {"name": name, "sha256": sha256})

    def corpus(self) -> dict[str, str]:
        """The `name` and `sha256` of the text that the run was trained on."""
        return _object(self.corpus_path, CORPUS)

    def vocabulary(self) -> dict[str, list[str]]:
        """The `characters` and `special_tokens` of the run."""
        return _object(self.vocabulary_path, VOCABULARY)

    def save_reference_lines(self, lines: Mapping[str, float]) -> None:
        """Write the reference losses by name, in nats per masked character."""
        write_json(self.reference_lines_path, dict(lines), indent=2)

    def reference_lines(self) -> dict[str, float]:
        """The reference losses by name, in nats per masked character."""
        lines = _object(self.reference_lines_path, {})
        return checked(lines, dict.fromkeys(lines, float), str(self.reference_lines_path), RunFolderError)

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add one evaluation to metrics.jsonl."""
        append_line(self.metrics_path, to_json(row))

    def metrics(self) -> list[dict[str, Any]]:
        """All evaluations so far, oldest first."""
        return _rows(self.metrics_path, ROW)

    def append_event(self, event: dict[str, Any]) -> None:
        """Add an event, such as a change by hand, to events.jsonl."""
        append_line(self.events_path, to_json(event))

    def events(self) -> list[dict[str, Any]]:
        """All events so far, oldest first."""
        return _rows(self.events_path, EVENT)

    def append_log(self, line: str) -> None:
        """Add a line of text to log.txt."""
        append_line(self.log_path, line)

    def sizes(self) -> dict[str, int]:
        """Flush the growing files to disk and return their sizes in bytes. A checkpoint stores them for `truncate`."""
        flush(self.path)
        files = [path for path in self._growing if path.exists()]
        for path in files:
            flush(path)
        return {path.name: path.stat().st_size for path in files}

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Cut the growing files to the `sizes` that a checkpoint stored; later lines belong to steps that are lost.

        Raises RunFolderError, and cuts nothing, if a row or an event before that is damaged or missing.
        """
        checked(sizes, SIZES, f"the list of sizes in {self.checkpoints}", RunFolderError)
        for path, schema in ((self.metrics_path, ROW), (self.events_path, EVENT)):
            _rows(path, schema, sizes.get(path.name, 0))
        for path in self._growing:
            if path.exists():
                os.truncate(path, min(path.stat().st_size, sizes.get(path.name, 0)))


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise RunFolderError(f"cannot read {path} ({error.strerror})") from error


def _object(path: Path, schema: Mapping[str, Any]) -> dict[str, Any]:
    return _parsed(_read(path), schema, str(path))


def _rows(path: Path, schema: Mapping[str, Any], size: int | None = None) -> list[dict[str, Any]]:
    """The rows in the first `size` bytes of a file, or in all of it except a line that is still being written."""
    content = _read(path) if path.exists() else b""
    if size is not None and (len(content) < size or not content[:size].endswith(b"\n" if size else b"")):
        raise RunFolderError(f"{path} is damaged: it ends before the last row that the checkpoint counts")
    lines = content[:size].split(b"\n")[:-1]
    return [_parsed(line, schema, f"line {number} of {path}") for number, line in enumerate(lines, start=1)]


def _parsed(content: bytes, schema: Mapping[str, Any], source: str) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RunFolderError(f"{source} is damaged: it is not JSON") from error
    return checked(parsed, schema, source, RunFolderError)
