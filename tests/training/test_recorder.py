import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from training.resume import Recorder


class Disk:
    """The folder of a run that takes rows while it has room."""

    checkpoints = Path("nowhere")

    def __init__(self):
        self.rows: list[dict] = []
        self.room = 0

    def append_metrics(self, row: dict) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1
        self.rows.append(row)

    def sizes(self) -> dict[str, int]:
        return {}


def test_rows_wait_for_room_and_are_written_once_in_order():
    disk, lines = Disk(), []
    recorder, trainer = Recorder(disk, {}), SimpleNamespace(report=lines.append)
    for step in (1, 2, 3):
        recorder.evaluated(trainer, {"step": step}, None)
    assert lines == ["cannot write a row; it stays queued (No space left on device)"] * 3
    disk.room = 2
    with pytest.raises(OSError, match="No space"):
        recorder.state_dict()
    assert [row["step"] for row in disk.rows] == [1, 2]
    disk.room = 9
    recorder.evaluated(trainer, {"step": 4}, None)
    recorder.state_dict()
    assert [row["step"] for row in disk.rows] == [1, 2, 3, 4]
