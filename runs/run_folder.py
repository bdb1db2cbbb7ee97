"""The files of a run: `logs/<experiment>/<uuid>/`."""

import fcntl
import hashlib
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from runs.files import (
    append_line,
    flush,
    to_json,
    to_yaml,
    write_atomically,
    write_json,
)
from runs.knobs import knobs_of
from runs.reading import without_waiting
from runs.schema import (
    ABOUT,
    CORPUS,
    DELIVERED,
    EVENT,
    GROWING,
    HARDWARE,
    PLAN,
    ROW,
    SHOWN_CONFIG,
    SIZES,
    STATUS,
    VOCABULARIES,
    RunFolderError,
    checked,
    read_content,
    read_object,
    read_rows,
)

ATTEMPTS_TO_LOCK = 10


class RunFolder:
    """Reads and writes the files of one run, which are replaced as a whole or grow by whole lines.

    Writing raises OSError. Reading raises RunFolderError if a file is missing or does not match its
    schema.
    """

    def __init__(self, path: Path, kept: str = ""):
        """With `kept`, it stands for the run at that checkpoint of its history."""
        self.path = path
        self.suffix = f"@{kept}" if kept else ""
        self.name = f"{path.parent.name}/{path.name}{self.suffix}"
        self.about_path = path / "about.json"
        self.status_path = path / "status.json"
        self.config_path = path / "config.yaml"
        self.corpus_path = path / "corpus.json"
        self.vocabulary_path = path / "vocabulary.json"
        self.reference_lines_path = path / "reference_lines.json"
        self.plan_path = path / "plan.json"
        self.curves_path = path / "curves.png"
        self.checkpoints = path / "checkpoints"
        name = f"at-{kept}" if kept else "best"
        self.weights_path = self.checkpoints / f"{name}.safetensors"
        # the folder for measurements of these weights
        self.results = path / name if kept else path
        self.code_path = path / "code"
        self._growing = [path / name for name in GROWING]
        self.metrics_path, self.hardware_path, self.events_path, self.log_path = (
            self._growing
        )

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Create the folder of a new run. Raises RunFolderError if that is not possible."""
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {path} ({error.strerror}): set logs to a folder"
            ) from error

        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run until this process has trained it or ends. Raises RunFolderError if it is
        locked already."""
        with open(self.path / "lock", "w") as file:
            for _ in range(ATTEMPTS_TO_LOCK):
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                # `is_locked` in another process holds it for microseconds
                time.sleep(0.02)
            else:
                raise RunFolderError(
                    f"{self.path} is being trained by another process right now"
                )
            yield

    def is_locked(self) -> bool:
        try:
            with open(self.path / "lock", opener=without_waiting) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return not isinstance(error, FileNotFoundError)
        return False

    def last_heard(self) -> float:
        """The time of the run's last sign of life, in seconds since 1970."""
        if self.is_locked():
            return time.time()
        files = [*self._growing, self.status_path]
        return max(
            (path.stat().st_mtime for path in files if path.exists()), default=0.0
        )

    def kept(self) -> list[str]:
        """The names of the checkpoints of the run's history, such as 5M, oldest first."""
        paths = sorted(
            self.checkpoints.glob("at-*.safetensors"),
            key=lambda path: path.lstat().st_mtime_ns,
        )
        return [path.stem.removeprefix("at-") for path in paths]

    def save_config(self, values: dict[str, Any]) -> None:
        """Write every resolved key; `--config` with this file repeats the run."""
        write_atomically(self.config_path, f"{to_yaml(values)}\n".encode())

    def config(self, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every key of the run with its value."""
        try:
            values = yaml.safe_load(read_content(self.config_path))
        except (yaml.YAMLError, RecursionError) as error:
            raise RunFolderError(
                f"{self.config_path} is damaged: it is not YAML"
            ) from error
        return checked(values, schema or {}, str(self.config_path))

    def save_about(
        self,
        name: str,
        comment: str,
        overridden: Iterable[str],
        torchrun_id: str | None = None,
    ) -> None:
        """Write the run's name, a comment, the keys that the user set, the time, and torchrun's
        command if any."""
        about = {
            "name": name,
            "comment": comment,
            "overridden": list(overridden),
            "began": time.time(),
            "launch": torchrun_id,
        }
        write_json(self.about_path, about)

    def torchrun_id(self) -> str | None:
        """The torchrun command that has started the run, if one has."""
        return read_object(self.about_path, ABOUT).get("launch")

    def about(self) -> dict[str, Any]:
        """The description of the run that a dashboard shows beside its curves."""
        about = read_object(self.about_path, ABOUT)
        config = self.config(SHOWN_CONFIG)
        status = self.status()
        corpus = self.corpus()
        corpus["name"] = Path(corpus["name"]).name

        if all("masking_prob" in row for row in config["training.stages"]):
            del config["masking.masking_prob"]  # the key has no effect

        comment = about["comment"]
        knobs = None
        by_hand = [
            event for event in self.events() if event["event"] == "changed by hand"
        ]

        if by_hand:
            knobs = by_hand[-1].get("after")
            shown = knobs_of(knobs or {})
            config = {
                "changed_by_hand": f"from step {by_hand[-1]['step']}: {shown}",
                **config,
            }
            comment += " (changed by hand)"

        if status["status"] == "crashed":
            comment = f"failed: {status['details']} | {comment}"

        references = (
            self.reference_lines() if self.reference_lines_path.exists() else {}
        )
        references.pop("uniform", None)  # it would squeeze the curves
        return about | {
            "name": f"{about['name']}, {corpus['name']}",
            "command": about["comment"],
            "comment": comment,
            "configs": config,
            "explicit": about["overridden"],
            "folder": str(self.path.absolute()),
            "references": references,
            "planned": self.planned(),
            "corpus": corpus,
            "knobs": knobs,
            # of the start, or the last resume, which shortens files
            "started": self.config_path.stat().st_mtime,
        }

    def command(self) -> str:
        """The command that started the run, for a shell."""
        about = read_object(self.about_path, ABOUT)
        config = self.config()
        source = about["comment"]
        words = []

        for key in about["overridden"]:
            source = source.partition(f" {key}=")[0]
            if key in config and key != "logs":
                value = config[key]
                text = (
                    to_yaml(value, in_one_line=True)
                    if isinstance(value, list)
                    else value
                )
                words.append(f"{key}={text}")

        option, _, name = source.partition(" ")  # a path may have spaces
        return f"python experiment.py --{option} {shlex.join([name, *words])}"

    def save_status(self, status: str, details: str = "") -> None:
        """Write the state of the run (see `runs.schema.STATUSES`) and its reason."""
        write_json(
            self.status_path,
            {"status": status, "details": details, "time": time.time()},
        )

    def status(self) -> dict[str, Any]:
        return read_object(self.status_path, STATUS)

    def save_corpus(self, name: str, sha256: str, contents: str = "") -> None:
        content = {"name": name, "sha256": sha256, "contents": contents}
        write_json(self.corpus_path, content)

    def corpus(self) -> dict[str, str]:
        """The `name` and `sha256` of the text that the run was trained on, and its `contents` in
        words, if it has documents."""
        return read_object(self.corpus_path, CORPUS)

    def vocabulary(self) -> dict[str, Any]:
        """The tokens of the run: the content from which
        `data.tokens.vocabularies.load_vocabulary` makes its vocabulary."""
        content = read_object(self.vocabulary_path, {})
        # whose files have no `tokens`
        schema = VOCABULARIES.get(
            str(content.get("tokens")), VOCABULARIES["characters"]
        )
        return checked(content, schema, str(self.vocabulary_path))

    def save_code(self, name: str, folder: Path, files: Mapping[Path, bytes]) -> None:
        """Write copies of the user's own files, with this content and in this folder, into the folder
        `name`. An earlier copy of a file stays the one that counts."""
        facts = self.code()
        for path, content in files.items():
            copy = Path(name) / path.relative_to(folder)
            write_atomically(self.code_path / copy, content)
            sha256 = hashlib.sha256(content).hexdigest()
            facts.setdefault(str(path), {"copy": copy.as_posix(), "sha256": sha256})

        write_json(self.code_path / "files.json", facts, indent=1)

    def code(self) -> dict[str, dict[str, str]]:
        """The name and the SHA-256 of the copy of each of the user's own files."""
        index = self.code_path / "files.json"
        schema = {str: {"copy": str, "sha256": str}}
        return read_object(index, schema) if index.exists() else {}

    def save_reference_lines(self, lines: Mapping[str, float]) -> None:
        """Write the reference losses by name, in nats per masked character."""
        write_json(self.reference_lines_path, dict(lines), indent=2)

    def reference_lines(self) -> dict[str, float]:
        return read_object(self.reference_lines_path, {str: float})

    def save_plan(self, plan: Mapping[str, Any]) -> None:
        write_json(self.plan_path, plan)

    def planned(self) -> list[dict[str, float]]:
        """The losses that a plan predicts for the run; none without a plan."""
        if not self.plan_path.exists():
            return []
        return read_object(self.plan_path, PLAN)["curve"]

    def append_metrics(self, row: dict[str, Any]) -> None:
        append_line(self.metrics_path, to_json(row))

    def metrics(self) -> list[dict[str, Any]]:
        """All evaluations so far, oldest first."""
        return read_rows(self.metrics_path, ROW)

    def append_hardware(self, row: dict[str, Any]) -> None:
        append_line(self.hardware_path, to_json(row))

    def append_event(self, event: dict[str, Any]) -> None:
        append_line(self.events_path, to_json(event))

    def events(self) -> list[dict[str, Any]]:
        return read_rows(self.events_path, EVENT)

    def append_log(self, line: str) -> None:
        append_line(self.log_path, line)

    def delivered_sizes(self) -> dict[str, int]:
        """The sizes in bytes of the files that a dashboard receives."""
        paths = [self.path / name for name in DELIVERED]
        return {
            path.name: path.stat().st_size if path.exists() else 0 for path in paths
        }

    def sizes(self) -> dict[str, int]:
        """Flush the growing files to disk and return their sizes in bytes. A checkpoint stores them
        for `truncate`."""
        flush(self.path)
        files = [path for path in self._growing if path.exists()]
        for path in files:
            flush(path)
        return {path.name: path.stat().st_size for path in files}

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Cut the growing files to the `sizes` that a checkpoint stored. Raises RunFolderError, and
        cuts nothing, if a row or an event before that is damaged or missing."""
        checked(sizes, SIZES, f"the list of sizes in {self.checkpoints}")
        for path, schema in zip(self._growing, (ROW, HARDWARE, EVENT), strict=False):
            read_rows(path, schema, sizes.get(path.name, 0))
        for path in self._growing:
            if path.exists():
                os.truncate(path, min(path.stat().st_size, sizes.get(path.name, 0)))
