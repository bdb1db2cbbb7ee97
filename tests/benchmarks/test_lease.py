"""The script for a rented machine, with programs in the place of Python that note their words."""

import os
import shutil
import subprocess

import pytest

from runs.files import ROOT

FREEZE = "torch==2.15.0+cu132\\nlabml-nn==0.5.1\\nGitPython==3.2.1\\n-e git+x#egg=y\\n"
HERE = f'[ "$3" = freeze ] && printf "{FREEZE}" || echo "$@" >> words'
THERE = 'echo "$PYTHONPATH: $@" | tee -a words'


@pytest.fixture
def lease(tmp_path):
    """Runs the script in a folder of its own; returns the words that Python got there."""
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "lease.sh", tmp_path / "benchmarks")
    (tmp_path / "text.txt").write_text("To be")
    (tmp_path / "machine.txt").write_text("torch @ file:///x\ngitpython==3.1\n")
    for name, program in ((".venv/bin/python", HERE), ("bin/python3", THERE)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/bash\n{program}\n")
        path.chmod(0o755)

    def run(*words, **variables):
        own = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "FOLIO_TINY_SHAKESPEARE": str(tmp_path / "text.txt"),
        }
        subprocess.run(
            ["bash", "benchmarks/lease.sh", *words],
            check=True,
            cwd=tmp_path,
            env=os.environ | own | variables,
        )
        return (tmp_path / "words").read_text().splitlines()

    return run


def test_only_packages_that_the_machine_lacks_are_collected(lease, tmp_path):
    words = lease("collect", "machine.txt")
    assert [line.split()[-1] for line in words] == ["labml-nn==0.5.1"]
    assert (tmp_path / "wheels" / "tiny_shakespeare.txt").read_text() == "To be"


def test_there_one_call_installs_and_measures(lease, tmp_path):
    lease("collect", "machine.txt")
    (tmp_path / "wheels" / "labml_nn.whl").touch()
    (tmp_path / "words").unlink()
    _, measured = lease("run", "report", "--minutes", "9")
    _, installed, again = lease("run", "--only", "base", OUT="other")[1:]

    assert "--no-index" in installed
    assert "wheels/labml_nn.whl" in installed
    site = tmp_path / "logs" / "site-packages"
    command = f"{site}: -m benchmarks.gpu --copy-to"
    assert measured == f"{command} report --minutes 9"
    assert again == f"{command} other --only base"
    log = (tmp_path / "report" / "gpu.log").read_text()
    assert log == f"{measured}\n"
