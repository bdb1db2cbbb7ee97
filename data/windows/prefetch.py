"""Draws the windows of a text on the disk. A thread may draw those of the next step while the
device computes."""

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from data.windows import WindowBatch, Windows

SCHEDULING = Path("/proc/thread-self/schedstat")  # of Linux


def idle_time() -> float:
    """Seconds for which this thread has neither computed nor waited for a busy processor; only
    differences have a meaning."""
    nanoseconds = 0
    with contextlib.suppress(OSError):  # another system
        nanoseconds = int(SCHEDULING.read_bytes().split()[1])
    return time.perf_counter() - time.thread_time() - nanoseconds / 1e9


class Prefetched:
    """Windows of a text on the disk, drawn by a thread or not, and the time for which steps wait
    for them.

    Windows and state are the same with and without a thread.
    """

    def __init__(self, windows: Windows, device: torch.device, *, in_thread: bool):
        self.windows = windows
        self.device = device
        # seconds for which steps have waited for windows; a callback resets it
        self.waited = 0.0
        self._pool = ThreadPoolExecutor(1) if in_thread else None
        # of the windows before the next draw, if that has begun
        self._state: dict[str, Any] = {}
        self._next: Future[WindowBatch] | None = None
        self._shape = (0, 0)  # of the next draw

    def draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        """A batch of windows, `[batch_size, seq_len]`; the thread, if any, begins to draw another
        one."""
        if self._shape != (batch_size, seq_len):
            self._take_back()
        began = idle_time()
        batch = self._next.result() if self._next else self._draw(batch_size, seq_len)
        self.waited += idle_time() - began
        if self._pool:
            self._state = self.windows.state_dict()
            self._shape = (batch_size, seq_len)
            self._next = self._pool.submit(self._draw, batch_size, seq_len)
        return tree_map_only(
            torch.Tensor, lambda part: part.to(self.device, non_blocking=True), batch
        )

    def _draw(self, batch_size: int, seq_len: int) -> WindowBatch:
        batch = self.windows.draw(batch_size, seq_len)
        # Copies from pinned memory do not wait for the device.
        if self.device.type != "cuda":
            return batch
        return tree_map_only(torch.Tensor, torch.Tensor.pin_memory, batch)

    def _take_back(self) -> None:
        """Forget the next draw: the windows are in their state before it."""
        if self._next:
            self._next.result()
            self._next = None
            self.windows.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        return self._state if self._next else self.windows.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._take_back()
        self.windows.load_state_dict(state)
