"""`python evaluate.py` as a user runs it."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from evaluate import main
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


def test_a_run_is_measured_and_runs_are_compared(command, evaluate, train, corpus_file, tmp_path):
    logs = tmp_path / "logs" / "mlm"
    done = command(f"data.corpus={corpus_file}", "training.max_steps=6", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    train(data__corpus=str(corpus_file), training__max_steps=6, model__d_ff=16, folder=logs / "narrow")

    done = evaluate("last")
    assert done.returncode == 0, done.stderr
    for part in ("protocol", "one at a time", "50%", "uniform", "lower case", "newline", "4 or more", "counting"):
        assert part in done.stdout
    assert "Traceback" not in done.stderr
    assert "\r" not in done.stdout
    runs = sorted(logs.iterdir(), key=lambda path: path.stat().st_mtime)
    (measured,) = [path for path in runs if (path / "evaluation.json").exists()]
    results = json.loads((measured / "evaluation.json").read_text())
    rows = [json.loads(line) for line in (measured / "metrics.jsonl").read_text().splitlines()]
    assert results["loss.valid"] == pytest.approx(min(row["loss.valid"] for row in rows), abs=1e-6)
    assert (measured / "evaluation.png").read_bytes().startswith(b"\x89PNG")

    config = yaml.safe_load((runs[0] / "config.yaml").read_text())
    del config["training.muon_momentum"]  # a run of a time that did not know this key
    (runs[0] / "config.yaml").write_text(yaml.safe_dump(config))
    done = evaluate(*(str(path) for path in runs))
    assert done.returncode == 0, done.stderr
    assert "model.d_ff" in done.stdout
    assert "(2 seeds)" in done.stdout
    assert re.search(
        r"group 2: .* against group 1 [+-]\d\.\d+ ± \d\.\d+ over windows: (better|worse|a tie) \(p", done.stdout
    )

    another = tmp_path / "another.txt"
    another.write_text(corpus_file.read_text()[::-1])
    train(data__corpus=str(another), training__max_steps=1, folder=logs / "another")
    done = evaluate("last", str(runs[0]))
    assert done.returncode == 0
    assert "on different texts" in done.stdout


def test_a_run_that_is_not_there_gets_the_list(evaluate):
    done = evaluate("nowhere")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("has no runs yet; python experiment.py makes one")
    assert len(done.stderr.splitlines()) == 1


def test_a_run_without_weights_and_one_whose_corpus_has_changed(train, corpus_file, tmp_path, capsys):
    run = train(data__corpus=str(corpus_file), training__max_steps=1, folder=tmp_path / "logs" / "mlm" / "run").run
    corpus_file.write_text(corpus_file.read_text()[:-1])  # the same characters, another text
    for path, message in (
        (None, "has changed since"),
        (run.corpus_path, "corpus.json (No such file or directory)"),
        (run.checkpoints / "best.safetensors", "has no trained weights yet"),
    ):
        if path is not None:
            path.unlink()
        assert main(["last", "--logs", str(tmp_path / "logs")]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert len(said.splitlines()) == 1
