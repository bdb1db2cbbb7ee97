"""Fixtures of the audit's tests: few threads, few windows, and audits of pipelines in the test's
own process."""

import pickle
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import auditing.pipelines.audit
from auditing.host import import_target
from auditing.masks import measure
from auditing.masks.table import Table
from auditing.pipelines.audit import audit_with
from auditing.pipelines.calls import Service
from auditing.pipelines.references import Play
from auditing.pipelines.target_batch import Array
from auditing.report import Report

# A job that a shell starts in the background ignores Ctrl-C, and so would the programs of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
# transformers imports torchvision if it is installed, even one for another PyTorch.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]

PIPELINES = Path(__file__).parent / "pipelines"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in parallel, one per core."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


def mostly_slow(cases: Mapping[str, Any], fast: Collection[str]) -> list[Any]:
    """Parameters of a test by name. `make soak` runs those that are not named in `fast`."""
    assert set(fast) <= set(cases)
    parameters = []
    for name, case in cases.items():
        values = case if isinstance(case, tuple) else (case,)
        marks = () if name in fast else pytest.mark.slow
        parameters.append(pytest.param(*values, id=name, marks=marks))
    return parameters


def until(condition: Callable[[], object], seconds: float) -> None:
    """Wait until `condition` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.02)


@pytest.fixture
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the windows that an audit of masks measures, which is enough for all but a few
    bugs."""
    monkeypatch.setattr(measure, "POOL", 256)
    monkeypatch.setattr(
        measure,
        "OTHERS",
        {"long": (115, 256, 3), "short": (510, 5, 1), "padded": (315, 64, 1)},
    )


class Remembering(Play):
    """Computes the floor of equal batches once: most pipelines mask their text alike."""

    known: dict[bytes, Array] = {}

    def floor(self, table: Table) -> Array:
        key = pickle.dumps((table.inputs, table.source, table.masked))
        if key not in self.known:
            self.known[key] = super().floor(table)
        return self.known[key]


@pytest.fixture(scope="session")
def small_play() -> Play:
    return Remembering(100_000)


@pytest.fixture
def audit(small_play: Play, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Audits a target, or one of auditing/tests/pipelines by name, on little text; it trains for
    one step at least."""
    monkeypatch.setattr(auditing.pipelines.audit, "N_CHECKED", 2048)

    def run(target: Any) -> Report:
        if isinstance(target, str):
            target = import_target(f"{PIPELINES}/{target}")
        service = Service(target)

        def call(name: str, *arguments: Any) -> Any:
            return getattr(service, name)(*arguments)

        return audit_with(
            call, "target", small_play, time.monotonic(), 0, lambda line: None
        )

    return run
