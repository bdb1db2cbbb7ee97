"""Pages of the documentation, followed step by step in a folder outside of the repository, with few
training steps."""

import json
import re
import runpy
import shlex

import pytest

import evaluate
import experiment
import export
import finetune
import predict
from runs.files import ROOT
from tests.conftest import TINY

PROGRAMS = {
    "experiment": experiment.main,
    "predict": predict.main,
    "evaluate": evaluate.main,
    "finetune": finetune.main,
    "export": export.main,
}
COMMAND = re.compile(r"^python (\w+)\.py (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_every_step_of_the_tutorial_works(tmp_path, shakespeare, monkeypatch, capsys):
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = FENCE.findall(page)
    (code,) = [text for language, text in blocks if language == "python"]
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 8)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(code)
    (tmp_path / "pages.txt").write_text(page)
    (first,) = re.findall(r'^make train ARGS="(.*)"$', page, re.MULTILINE)
    commands = [("experiment", first)]
    for _, text in blocks:
        commands += COMMAND.findall(text)

    for program, words in commands:
        words = re.sub(r"max_steps=\d+", "max_steps=2", words).replace("--seeds 3 ", "")
        run(program, words, tmp_path)
    assert "side by side" in capsys.readouterr().out
    assert len(commands) >= 8


def run(program, words, folder):
    """A command of a page, with runs in `folder`."""
    arguments = []
    for word in shlex.split(words):
        paths = sorted(map(str, folder.glob(word))) if "*" in word else [word]
        arguments += paths
    logs = str(folder / "logs")
    arguments += [f"logs={logs}"] if program == "experiment" else ["--logs", logs]
    assert PROGRAMS[program](arguments) == 0, (program, arguments)


@pytest.mark.slow
def test_documents_become_a_classifier_as_their_page_shows(
    tmp_path, empty_cache, monkeypatch, capsys
):
    page = (ROOT / "docs" / "documents.md").read_text(encoding="utf-8")
    section = page.partition("## From a file to a classifier")[2].partition("\n## ")[0]
    blocks = FENCE.findall(section)
    (code,) = [text for language, text in blocks if language == "python"]
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 8)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docstrings.py").write_text(code)
    runpy.run_path("docstrings.py")
    for path in tmp_path.glob("*.jsonl"):  # a part is enough
        path.write_text("".join(path.read_text().splitlines(keepends=True)[::15]))
    small = TINY | {"training.max_steps": 2, "training.max_seconds": None}
    del small["device"]
    quick = shlex.join(f"{key}={json.dumps(value)}" for key, value in small.items())

    commands = COMMAND.findall("".join(text for _, text in blocks))
    for program, words in commands:
        words = words.replace("training.max_seconds=60", quick)
        run(program, words.replace("--labels 200", "--labels 20"), tmp_path)

    programs = [program for program, _ in commands]
    assert programs == [
        "experiment",
        "predict",
        "finetune",
        "predict",
        "export",
        "export",
    ]
    assert "exact copies of documents" in capsys.readouterr().out
    assert "documents (" in (tmp_path / "exported" / "README.md").read_text()
    assert (tmp_path / "exported_classifier" / "config.json").exists()
