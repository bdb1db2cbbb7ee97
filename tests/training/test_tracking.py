"""Runs as they start: several at once, and without a home folder."""

import os

import yaml

from runs.run_folder import RunFolder
from tests.conftest import TINY


def test_runs_that_start_together_need_no_home_folder(tmp_path, corpus_file, fork_server):
    """labml would list the repository in ~/.labml, where runs that start together delete each other's files."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    words = ["experiment.py", "--config", str(tmp_path / "tiny.yaml"), f"data.corpus={corpus_file}"]
    words += [f"logs={tmp_path / 'logs'}", "training.max_steps=1", "training.evaluations=1"]
    programs = [fork_server.start(words, {**os.environ, "HOME": "/proc"}) for _ in range(3)]
    for program in programs:
        assert program.wait(120) == 0, program.stderr.read()
        output = program.stdout.read().splitlines()
        assert output[0].startswith("config ")
        assert {line.partition(" ")[0] for line in output[1:]} <= {"run", "reference", "step", "done"}
    folders = [RunFolder(path) for path in (tmp_path / "logs" / "mlm").iterdir()]
    assert [run.metrics()[-1]["step"] for run in folders] == [1] * 3
