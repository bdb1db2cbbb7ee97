"""Fixtures for audits of pipelines in the test's own process."""

import importlib
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import auditing.pipelines.audit
from auditing.pipelines import calls
from auditing.pipelines.audit import PipelineAudit, audit_with
from auditing.pipelines.references import Play
from auditing.pipelines.target_batch import Array
from auditing.pipelines.windows_read import Reading

sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]  # as in export.py
PIPELINES = Path(__file__).parent / "pipelines"


class Remembering(Play):
    """Computes the references of equal batches once: most pipelines mask their text alike."""

    def __init__(self, length: int):
        super().__init__(length)
        self.known: dict[bytes, Any] = {}

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        key = pickle.dumps((function.__name__, arguments))
        if key not in self.known:
            self.known[key] = function(*arguments)
        return self.known[key].copy()

    def floor(self, reading: Reading) -> Array:
        return self.once(super().floor, reading)


@pytest.fixture(scope="session")
def small_play() -> Play:
    return Remembering(100_000)


@pytest.fixture
def audit(small_play: Play, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PipelineAudit]:
    """Audits a target, or one of tests/audit/pipelines by name, on little text; it trains for one step at least."""
    monkeypatch.syspath_prepend(str(PIPELINES))
    monkeypatch.setattr(auditing.pipelines.audit, "N_CHECKED", 2048)
    monkeypatch.setattr(auditing.pipelines.audit, "N_EVALUATED", 2048)
    monkeypatch.setattr(auditing.pipelines.audit, "N_POINTS", 2)

    def run(target: Any, seconds: float = 0.0) -> PipelineAudit:
        name = target if isinstance(target, str) else "target"
        module, _, attribute = name.partition(":")
        if isinstance(target, str):
            target = importlib.import_module(module)
        functions = calls.functions(getattr(target, attribute) if attribute else target)

        def call(name: str, *arguments: Any) -> Any:
            return functions[name](*arguments)

        return audit_with(call, name, small_play, time.monotonic() + seconds, 0, lambda line: None)

    return run
