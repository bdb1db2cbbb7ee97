"""Records every ten seconds how busy the machine is while a run trains."""

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pynvml

from runs.run_folder import RunFolder

SECONDS_BETWEEN = 10.0  # one row and the next
# that training waits for the thread; a driver that hangs does not hold it up
SECONDS_TO_END = 1.0


@contextmanager
def recorded(
    run: RunFolder, step: Callable[[], int], gpu: str | None
) -> Iterator[None]:
    """Write a row of hardware.jsonl every ten seconds, in a thread, if possible. `step` returns the
    current training step, `gpu` is the UUID of the run's CUDA device."""
    ended = threading.Event()

    def record() -> None:
        with suppress(Exception):  # without this record, the run trains too
            process = psutil.Process()
            device = _nvml_device(gpu)
            _usage(process, device)  # psutil measures the CPU since the previous call
            while not ended.wait(SECONDS_BETWEEN):
                row = {
                    "step": step(),
                    "time": round(time.time(), 1),
                    **_usage(process, device),
                }
                with suppress(OSError):
                    run.append_hardware(row)

    thread = threading.Thread(target=record, name="hardware", daemon=True)
    thread.start()

    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS_TO_END)


def processor() -> str:
    """The name of the CPU."""
    linux = Path("/proc/cpuinfo")
    model = (
        re.search(r"model name\s*: (.*)", linux.read_text()) if linux.exists() else None
    )
    name = model[1] if model else platform.processor() or platform.machine()
    return re.sub(r"\((R|TM)\)", "", name).strip()


def _nvml_device(gpu: str | None) -> Any:
    """NVIDIA's handle of a GPU; None without its driver, or if `gpu` is a part of one (MIG)."""
    if gpu is not None:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            return pynvml.nvmlDeviceGetHandleByUUID(gpu)
    return None


def _usage(process: psutil.Process, device: Any) -> dict[str, float]:
    """Used shares in percent: of all cores and of the memory, by all processes and by this one; and
    of the GPU."""
    usage = {
        "cpu": psutil.cpu_percent(),
        "cpu_of_run": process.cpu_percent() / (os.cpu_count() or 1),
        "memory": psutil.virtual_memory().percent,
        "memory_of_run": process.memory_percent(),
    }
    if device is not None:
        with suppress(pynvml.NVMLError):  # the GPU does not report it
            memory = pynvml.nvmlDeviceGetMemoryInfo(device)
            usage["gpu_memory"] = 100 * memory.used / memory.total
            usage["gpu"] = pynvml.nvmlDeviceGetUtilizationRates(device).gpu

    return {name: round(share, 1) for name, share in usage.items()}
