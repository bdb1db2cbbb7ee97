"""The tutorial, followed step by step in a folder outside of the repository, with few training steps."""

import re
import shlex

import evaluate
import experiment
import predict
from runs.files import ROOT

PROGRAMS = {
    "experiment": experiment.main,
    "predict": predict.main,
    "evaluate": evaluate.main,
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
        arguments = []
        for word in shlex.split(words):
            paths = (
                sorted(str(path) for path in tmp_path.glob(word))
                if "*" in word
                else [word]
            )
            arguments += paths
        logs = str(tmp_path / "logs")
        arguments += [f"logs={logs}"] if program == "experiment" else ["--logs", logs]
        assert PROGRAMS[program](arguments) == 0, (program, arguments)
    assert "side by side" in capsys.readouterr().out
    assert len(commands) >= 8
