"""Runs a step in a process of its own, and ends it at its limit."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from runs.files import ROOT, write_json

DRY_SECONDS = 120.0  # of processor time, which does not depend on other programs
# of the time counts there too, or a step that waits would never end
SHARE_OF_TIME = 0.02


class StepProcess:
    """A step that runs, with the programs that it starts. Its files are NAME.rows.json, which the
    step writes, NAME.log, its output, and NAME.json, its result."""

    def __init__(self, name: str, folder: Path, seconds: float, is_dry: bool):
        self.name = name
        self.path = folder / name
        self.is_dry = is_dry
        self.seconds = DRY_SECONDS if is_dry else seconds
        self.began = time.monotonic()
        self.was_ended = False
        rows = self.path.with_suffix(".rows.json")
        write_json(rows, {"passed": False, "rows": [], "figures": {}})
        command = [sys.executable, "-m", "benchmarks.gpu_steps"]
        command += [name, str(rows), f"{seconds:g}"]
        if is_dry:
            command.append("--dry-run")
        # all steps share compiled code, and several models compile at once
        own = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled"),
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
        }
        if is_dry:  # tiny shapes gain nothing from threads
            own = {"OMP_NUM_THREADS": "1"}
        with open(self.path.with_suffix(".log"), "w") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | own,
                start_new_session=True,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def is_over(self) -> bool:
        """Whether the step has finished, or reached its limit."""
        if self.process.poll() is None and self.spent() > self.seconds:
            self.was_ended = True
        return self.was_ended or self.process.poll() is not None

    def spent(self) -> float:
        """Seconds since the start; in a dry run, of processor time."""
        seconds = time.monotonic() - self.began
        if not self.is_dry:
            return seconds
        of_processor = processor_seconds(self.process.pid)
        return max(SHARE_OF_TIME * seconds, of_processor)

    def end(self) -> None:
        """End the step and the programs that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # a driver can keep a process from ending
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)

    def result(self) -> dict[str, Any]:
        """End the step, and write its result."""
        seconds = time.monotonic() - self.began
        self.end()
        log = self.path.with_suffix(".log")
        output = log.read_text(errors="replace")
        rows = self.path.with_suffix(".rows.json")
        result = json.loads(rows.read_text())
        code = self.process.returncode
        if self.was_ended:
            result["rows"].append(["ended", f"after {self.seconds:.0f} s"])
        elif code:
            lines = [f"exit code {code}"]
            lines += output.strip().splitlines()
            result["rows"].append(["failed", lines[-1]])
        result["passed"] &= code == 0
        result["seconds"] = round(seconds, 1)
        result["output"] = output[-4_000:]
        write_json(self.path.with_suffix(".json"), result, indent=1)
        return result


def processor_seconds(pid: int) -> float:
    """The processor time of a process and its descendants."""
    total = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):
                # user and system, of the process and of its finished children
                total += sum(each.cpu_times()[:4])
    return total
