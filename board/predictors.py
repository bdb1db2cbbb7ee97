"""Processes of `predict.py --serve`, which keep trained runs loaded for the page /try. The
dashboard itself needs no torch."""

import asyncio
import contextlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from runs.errors import InputError
from runs.files import ROOT

MOST = 2  # idle processes; the one that was used longest ago makes room
SECONDS_TO_ANSWER = 120.0  # the first answer loads torch and the run, perhaps from a slow disk
LONGEST_ANSWER = 2**24  # bytes
# of a process: its run, whether it answers with exact probabilities, and its weights' time
Key = tuple[str, bool, int]


class Predictors:
    """One process per run for the model's answers, and another for exact probabilities, which take
    longer. Each answers a line of JSON with a line of JSON."""

    def __init__(self) -> None:
        self._idle: dict[Key, asyncio.subprocess.Process] = {}  # the one used last at the end
        self._turns: dict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, folder: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of a run's process, which is started if necessary. Raises InputError."""
        # newer ones if the run has trained on
        weights = Path(folder, "checkpoints", "best.safetensors")
        key = (
            folder,
            bool(request.get("exact")),
            weights.stat().st_mtime_ns if weights.exists() else 0,
        )
        for old in [each for each in self._idle if each[:2] == key[:2] and each != key]:
            self._end(self._idle.pop(old))  # it holds older weights
        async with self._turns[key]:
            process = self._idle.pop(key, None) or await self._start(folder)
            line, said = b"", b"the model does not answer"
            try:
                with contextlib.suppress(OSError, ValueError, TimeoutError):
                    async with asyncio.timeout(SECONDS_TO_ANSWER):
                        process.stdin.write(json.dumps(request).encode() + b"\n")  # type: ignore[union-attr]
                        if not (line := await process.stdout.readline()):  # type: ignore[union-attr]
                            said = (await process.stderr.read()).strip() or said  # type: ignore[union-attr]
            finally:
                # if the page has gone, its answer must not become that of the next question
                if not line:
                    self._end(process)
            if not line:
                raise InputError(said.decode("utf-8", "replace").splitlines()[-1])
            self._idle[key] = process
            while len(self._idle) > MOST:
                self._end(self._idle.pop(next(iter(self._idle))))
        reply = json.loads(line)
        if "error" in reply:
            raise InputError(reply["error"])
        return reply

    async def _start(self, folder: str) -> asyncio.subprocess.Process:
        command = [sys.executable, str(ROOT / "predict.py"), "--serve", folder]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        return await asyncio.create_subprocess_exec(*command, **pipes, limit=LONGEST_ANSWER)  # type: ignore[arg-type]

    def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            process.kill()

    def close(self) -> None:
        """End the processes. Those that are answering end by themselves, since their standard input
        does."""
        for process in self._idle.values():
            self._end(process)
