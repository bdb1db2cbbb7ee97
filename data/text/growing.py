"""Files that only grow: an interrupted command goes on where it stopped."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import Any

from runs.files import flush, write_json
from runs.reading import read_bytes

PROGRESS = "progress.json"
SECONDS_BETWEEN_NOTES = 1.0


@dataclass
class GrowingFiles:
    """Files to append to."""

    folder: Path
    key: str
    files: dict[str, BufferedWriter]
    state: dict[str, Any]  # of the caller, at the last note; empty if there is none
    noted: float = field(default_factory=time.monotonic)

    def note(self, state: dict[str, Any]) -> None:
        """Note that the files are whole up to here."""
        sizes = {}
        for name, file in self.files.items():
            file.flush()
            flush(self.folder / name)
            sizes[name] = file.tell()

        content = {"key": self.key, "sizes": sizes, "state": state}
        write_json(self.folder / PROGRESS, content)
        self.noted = time.monotonic()

    def is_time_to_note(self) -> bool:
        return time.monotonic() > self.noted + SECONDS_BETWEEN_NOTES


@contextmanager
def growing_files(
    folder: Path, names: Sequence[str], key: str
) -> Iterator[GrowingFiles]:
    """Opens the files of a folder to append to them, and cuts them to their sizes at the last note.

    Files that were written with another `key` are replaced by empty ones.
    """
    progress = progress_in(folder, key)
    sizes = progress.get("sizes", dict.fromkeys(names, 0))
    folder.mkdir(parents=True, exist_ok=True)
    if not progress:
        for name in names:
            # another process may still read it
            (folder / name).unlink(missing_ok=True)

    with ExitStack() as stack:
        files = {}
        for name in names:
            files[name] = stack.enter_context(open(folder / name, "ab"))
            files[name].seek(files[name].truncate(sizes[name]))
        yield GrowingFiles(folder, key, files, progress.get("state", {}))


def progress_in(folder: Path, key: str) -> dict[str, Any]:
    """The last note of files that were written with `key`; empty if there is none, or if a file is
    shorter than noted."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        progress = json.loads(read_bytes(folder / PROGRESS))
        for name, size in progress["sizes"].items():
            if (folder / name).stat().st_size < size:
                return {}
        if progress["key"] == key:
            return progress

    return {}
