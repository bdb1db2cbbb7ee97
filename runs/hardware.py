"""Records every ten seconds how busy the machine is while a run trains."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import pynvml

from runs.run_folder import RunFolder

SECONDS_BETWEEN = 10.0  # two rows


@contextmanager
def recorded(run: RunFolder, step: Callable[[], int], gpu: str | None) -> Iterator[None]:
    """Write a row of hardware.jsonl every ten seconds, in a thread. A row that cannot be written is left out.

    `step` returns the current training step, `gpu` is the UUID of the run's CUDA device.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_record, args=(run, step, gpu, ended), name="hardware", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _record(run: RunFolder, step: Callable[[], int], gpu: str | None, ended: threading.Event) -> None:
    process = psutil.Process()
    _usage(process, gpu)  # psutil measures the CPU since the previous call
    while not ended.wait(SECONDS_BETWEEN):
        with suppress(OSError, psutil.Error):
            run.append_hardware({"step": step(), "time": round(time.time(), 1), **_usage(process, gpu)})


def _usage(process: psutil.Process, gpu: str | None) -> dict[str, float]:
    """Used shares in percent: of all cores and of the memory, by all processes and by this one; and of the GPU."""
    usage = {
        "cpu": psutil.cpu_percent(),
        "cpu_of_run": process.cpu_percent() / (os.cpu_count() or 1),
        "memory": psutil.virtual_memory().percent,
        "memory_of_run": process.memory_percent(),
    }
    if gpu is not None:
        with suppress(pynvml.NVMLError):  # no driver, or a part of a GPU, of which it reports no utilization
            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            memory = pynvml.nvmlDeviceGetMemoryInfo(device)
            usage["gpu_memory"] = 100 * memory.used / memory.total
            usage["gpu"] = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
    return {name: round(share, 1) for name, share in usage.items()}
