"""Processes of `predict.py --serve`, which keep trained runs loaded for the page /try. The
dashboard itself needs no torch."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from runs.errors import InputError
from runs.files import ROOT

MOST = 4  # processes, of a quarter of a GB or more each
# the first answer loads torch and the run, perhaps from a slow disk
SECONDS_TO_ANSWER = 120.0
LONGEST_ANSWER = 2**24  # bytes
# the folder of a run, and whether the answers are exact probabilities
Key = tuple[str, bool]


class BusyError(InputError):
    """All processes are answering. The message is one line for the user."""


class Predictor:
    """A process that answers each line of JSON with a line of JSON. It starts when it is asked, and
    again if the run has newer weights."""

    def __init__(self, folder: str):
        self.folder = folder
        self.weights = Path(folder, "checkpoints", "best.safetensors")
        self.loaded = 0  # the time of the weights that the process has loaded
        self.process: asyncio.subprocess.Process | None = None
        self.turn = asyncio.Lock()
        self.n_asking = 0  # requests that have no answer yet

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request, after those of earlier ones. Raises InputError."""
        self.n_asking += 1
        try:
            async with self.turn:
                reply = json.loads(
                    await self._line(json.dumps(request).encode() + b"\n")
                )
        finally:
            self.n_asking -= 1

        if "error" in reply:
            raise InputError(reply["error"])
        return reply

    async def _line(self, request: bytes) -> bytes:
        process = await self._current_process()
        line = b""
        reason = b"the model does not answer"

        try:
            with contextlib.suppress(OSError, ValueError, TimeoutError):
                async with asyncio.timeout(SECONDS_TO_ANSWER):
                    process.stdin.write(request)  # type: ignore[union-attr]
                    line = await process.stdout.readline()  # type: ignore[union-attr]
                    if not line:
                        reason = (await process.stderr.read()).strip() or reason  # type: ignore[union-attr]
        finally:
            # if the page has gone, its answer must not become that of the next question
            if not line:
                self.end()

        if not line:
            raise InputError(reason.decode("utf-8", "replace").splitlines()[-1])
        return line

    async def _current_process(self) -> asyncio.subprocess.Process:
        """The process with the newest weights."""
        newest = self.weights.stat().st_mtime_ns if self.weights.exists() else 0
        if newest != self.loaded:
            self.end()
        if self.process is None:
            command = [sys.executable, str(ROOT / "predict.py"), "--serve", self.folder]
            pipe = asyncio.subprocess.PIPE
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=LONGEST_ANSWER
            )
            self.loaded = newest

        return self.process

    def end(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                self.process.kill()
            self.process = None


class Predictors:
    """One process per run for the model's answers, and another for exact probabilities, which take
    longer: at most MOST processes."""

    def __init__(self) -> None:
        self._predictors: dict[Key, Predictor] = {}  # the one used last at the end

    async def ask(self, folder: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer of a run's process. Raises InputError, and BusyError if it cannot start
        because all others are answering."""
        key = (folder, bool(request.get("exact")))
        predictor = self._predictors.pop(key, None)

        if predictor is None:
            self._make_room()
            predictor = Predictor(folder)

        self._predictors[key] = predictor
        return await predictor.ask(request)

    def _make_room(self) -> None:
        """End the process that was used longest ago if there are as many as may be."""
        if len(self._predictors) < MOST:
            return
        for key, predictor in self._predictors.items():
            if not predictor.n_asking:
                predictor.end()
                del self._predictors[key]
                return

        raise BusyError(
            f"{MOST} models are answering, and no more may start: try again later"
        )

    def close(self) -> None:
        for predictor in self._predictors.values():
            predictor.end()
