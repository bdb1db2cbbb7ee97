"""A target runs in a process of its own, and whatever it does there ends in one line."""

import contextlib
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from auditing.errors import TargetError
from auditing.process import TargetProcess
from auditing.tests.conftest import until

SERVICE = """
import os
class Service:
    pid = staticmethod(os.getpid)
    def __init__(self, target):
        self.apply = target
"""
TARGETS = """
import os, subprocess, sys, time
print("printed by the target")
def double(x): return 2 * x
def wrong(x): raise ValueError("bad\\nrate")
def quits(x): os._exit(7)
def ends(x): os._exit(0)
def exits(x): sys.exit("no")
def aborts(x): os.abort()
def hangs(x): time.sleep(1000)
def writes_garbage(x):
    for descriptor in range(3, 41):
        try:
            os.write(descriptor, b"garbage" * 100)
        except OSError:
            pass
    return x
def starts_child(x):
    environment = {} if x > 1 else None
    if x == 3:  # the child of a child that has ended
        words = ["/bin/sh", "-c", "/bin/sleep 1000 >/dev/null & echo $!"]
        return int(subprocess.check_output(words, start_new_session=True, env=environment))
    return subprocess.Popen(["/bin/sleep", "1000"], start_new_session=x > 0, env=environment).pid
def interrupts(x): raise KeyboardInterrupt
def modules(x):
    import auditing.masks.audit, auditing.masks.calls
    return list(sys.modules)
def floods(x): print("x" * 1_000_000); return x
def sees_folio(x):
    try:
        import predict
    except ImportError:
        return False
    return True
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "a_service.py").write_text(SERVICE)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "targets.py").write_text(TARGETS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "service"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def host(target: str, seconds: float = 60) -> TargetProcess:
    return TargetProcess(target, "a_service", seconds)


def wait_until_dead(pid: int) -> None:
    """Returns when a process has ended; a process that has ended without being reaped counts."""

    def has_ended() -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return True

    until(has_ended, 30)


@pytest.mark.parametrize("target", ["targets:double", "targets.py:double"])
def test_calls_pass_arrays_and_results(folder, target, capfd):
    with host(target) as process:
        assert np.array_equal(
            process.call("apply", np.arange(6).reshape(2, 3)), [[0, 2, 4], [6, 8, 10]]
        )
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "printed by the target" in captured.err


def test_the_target_cannot_import_modules_of_folio(folder):
    """auditing/tests/test_reports.py has a target whose module has the name of one of Folio's
    packages."""
    with host("targets:sees_folio") as process:
        assert process.call("apply", 0) is False


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (
            "nothing:here",
            "cannot import 'nothing': ModuleNotFoundError: No module named 'nothing'",
        ),
        ("nothing.py:here", "no such file"),
        ("some/folder:here", "'some/folder' is not a Python file"),
        ("targets:here", "'targets' has no 'here'"),
        ("broken.py:here", "cannot import 'broken.py': SystemExit: 3"),
    ],
)
def test_a_target_that_cannot_be_imported(folder, target, line):
    (folder / "broken.py").write_text("raise SystemExit(3)")
    with pytest.raises(TargetError) as error, host(target):
        pass
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("wrong", "apply failed: ValueError: bad rate (targets.py, line 5)"),
        ("exits", "SystemExit: no"),
        ("interrupts", "KeyboardInterrupt (targets.py"),
        ("quits", "ended with exit code 7"),
        ("ends", "ended with exit code 0"),
        ("aborts", "ended with signal SIGABRT"),
    ],
)
def test_a_target_that_fails(folder, name, line):
    with host(f"targets:{name}") as process, pytest.raises(TargetError) as error:
        process.call("apply", np.zeros((2, 3), np.int64))
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_garbage_in_all_descriptors_does_not_reach_the_answers(folder):
    with host("targets:writes_garbage", seconds=10) as process:
        assert [process.call("apply", n) for n in range(3)] == [0, 1, 2]


def test_a_target_that_ends_its_process_beside_a_child_is_noticed_at_once(folder):
    """The child has copies of all descriptors, so none of them is closed."""
    (folder / "forks.py").write_text(
        "import os, time\n"
        "def end(x):\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    time.sleep(1000)\n"
    )

    with (
        host("forks:end", seconds=20) as process,
        pytest.raises(TargetError, match="ended with exit code 0"),
    ):
        process.call("apply", 1)


def test_nothing_is_left_in_the_temporary_folder(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    with host("targets:double") as process:
        process.call("apply", 1)
    with pytest.raises(TargetError), host("targets:none"):
        pass
    assert set(tmp_path.iterdir()) == before


def test_a_target_that_hangs_is_ended(folder):
    with host("targets:hangs") as process:
        process.seconds_per_call = 0.1
        pid = process.process.pid
        with pytest.raises(TargetError, match=r"apply of .* took longer than 0.1 s"):
            process.call("apply", np.zeros((2, 3), np.int64))
    wait_until_dead(pid)


ESCAPES = ["none", "its own session", "and an empty environment"]
ESCAPES += ["and no parent"] if sys.platform == "linux" else []


@pytest.mark.parametrize("escape", ESCAPES)
def test_the_children_of_a_target_end_with_it(folder, escape):
    with host("targets:starts_child") as process:
        child = process.call("apply", ESCAPES.index(escape))
    wait_until_dead(child)


def test_a_target_that_forks_when_it_is_imported_is_called_once(folder):
    (folder / "forks.py").write_text(
        "import os\nos.fork()\ndef double(x): return 2 * x\n"
    )
    with host("forks:double") as process:
        assert [process.call("apply", n) for n in range(4)] == [0, 2, 4, 6]


def test_a_flood_is_not_forwarded(folder, capfd):
    with host("targets:floods") as process:
        assert process.call("apply", 4) == 4
    printed = capfd.readouterr().err
    assert len(printed) < 10_000
    assert "bytes more" in printed


def test_the_process_ends_when_the_audit_is_killed(folder):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from auditing.process import TargetProcess
with TargetProcess("targets:double", "a_service", 60) as process:
    print(process.call("pid"), flush=True)
    sys.stdin.read()
"""

    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as audit:
        assert audit.stdout is not None
        pid = int(audit.stdout.readline())
        audit.send_signal(signal.SIGKILL)

    wait_until_dead(pid)


def test_the_target_meets_no_module_of_folio_but_auditing(folder):
    """Nor what is slow to import, or may not be installed."""
    with host("targets:modules") as process:
        loaded = process.call("apply", 0)
    assert "auditing.masks.audit" in loaded
    assert not {
        "data",
        "model",
        "configs",
        "runs",
        "audit",
        "transformers",
        "matplotlib",
    } & set(loaded)
