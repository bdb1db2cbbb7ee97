"""`python evaluate.py` as a user runs it."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.fixture
def evaluate(tmp_path, home):
    def run(*arguments: str):
        return subprocess.run(
            [sys.executable, "evaluate.py", *arguments, "--logs", str(tmp_path / "logs")],
            env={**os.environ, "HOME": str(home), "CUDA_VISIBLE_DEVICES": ""},
            cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return run


def test_a_run_is_measured_and_runs_are_compared(command, evaluate, corpus_file, tmp_path):
    keys = [f"data.corpus={corpus_file}", "training.max_steps=6"]
    done = command(*keys, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert command(*keys, "model.d_ff=16").returncode == 0

    done = evaluate("last")
    assert done.returncode == 0, done.stderr
    for part in ("protocol", "one at a time", "50%", "uniform", "lower case", "newline", "4 or more", "counting"):
        assert part in done.stdout
    assert "Traceback" not in done.stderr
    assert "\r" not in done.stdout
    runs = sorted((tmp_path / "logs" / "mlm").iterdir(), key=lambda path: path.stat().st_mtime)
    (measured,) = [path for path in runs if (path / "evaluation.json").exists()]
    results = json.loads((measured / "evaluation.json").read_text())
    rows = [json.loads(line) for line in (measured / "metrics.jsonl").read_text().splitlines()]
    assert results["loss.valid"] == pytest.approx(min(row["loss.valid"] for row in rows), abs=1e-6)
    assert (measured / "evaluation.png").read_bytes().startswith(b"\x89PNG")

    done = evaluate(*(str(path) for path in runs))
    assert done.returncode == 0, done.stderr
    assert "model.d_ff" in done.stdout
    assert "(2 seeds)" in done.stdout
    assert re.search(
        r"group 2: .* against group 1 [+-]\d\.\d+ ± \d\.\d+ over windows: (better|worse|a tie) \(p", done.stdout
    )

    another = tmp_path / "another.txt"
    another.write_text(corpus_file.read_text()[::-1])
    assert command(f"data.corpus={another}", "training.max_steps=1").returncode == 0
    done = evaluate("last", str(runs[0]))
    assert done.returncode == 0
    assert "on different texts" in done.stdout


def test_a_run_that_is_not_there_gets_the_list(evaluate):
    done = evaluate("nowhere")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("has no runs yet; python experiment.py makes one")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_without_weights_and_one_whose_corpus_has_changed(command, evaluate, corpus_file, tmp_path):
    assert command(f"data.corpus={corpus_file}", "training.max_steps=1").returncode == 0
    (run,) = (tmp_path / "logs" / "mlm").iterdir()
    corpus_file.write_text(corpus_file.read_text()[:-1])  # the same characters, another text
    done = evaluate("last")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "has changed since" in done.stderr
    (run / "corpus.json").unlink()
    done = evaluate("last")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is not a whole run: cannot read corpus.json" in done.stderr
    (run / "checkpoints" / "best.safetensors").unlink()
    done = evaluate("last")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "has no trained weights yet" in done.stderr
