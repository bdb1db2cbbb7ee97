import errno

import pytest

from runs.row_queue import RowQueue


class Disk:
    """Takes rows while it has room."""

    def __init__(self):
        self.rows: list[dict] = []
        self.room = 0

    def write(self, row: dict) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= 1
        self.rows.append(row)


def test_rows_wait_for_room_and_are_written_once_in_order():
    disk, queue = Disk(), RowQueue()
    for step in (1, 2, 3):
        with pytest.raises(OSError, match="No space"):
            queue.append(disk.write, {"step": step})
    disk.room = 2
    with pytest.raises(OSError, match="No space"):
        queue.write_all()
    assert [row["step"] for row in disk.rows] == [1, 2]
    disk.room = 9
    queue.append(disk.write, {"step": 4})
    queue.write_all()
    assert [row["step"] for row in disk.rows] == [1, 2, 3, 4]
