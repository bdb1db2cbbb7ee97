import json
import subprocess
import sys

import pytest

from benchmarks import command
from benchmarks.command import results_path, run_benchmark, save_results
from configs.keys import ConfigError


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a benchmark with some words; returns what its `main` was called with, the exit code and
    the output."""

    def run(*words, main=None):
        calls = []
        monkeypatch.setattr(sys, "argv", ["tricks.py", *words])
        monkeypatch.setattr(
            sys.modules["__main__"], "__file__", "benchmarks/tricks.py", raising=False
        )
        monkeypatch.setattr(sys.modules["__main__"], "__doc__", "What it measures.")
        flag, names = {"action": "store_true"}, {"nargs": "*", "default": []}
        with pytest.raises(SystemExit) as exited:
            run_benchmark(
                main or (lambda *arguments: calls.append(arguments)),
                {"names": names, "quick": flag, "search": flag},
                unnamed={"search"},
                seeds=3,
                seconds=90.0,
            )
        return calls, exited.value.code, capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "tricks"),
        (["--seeds", "3", "--seconds", "90"], "tricks"),
        (["--seeds", "1"], "tricks-seeds-1"),
        (["--seconds", "0.5"], "tricks-seconds-0-5"),
        (["--quick"], "tricks-quick"),
        (["--search"], "tricks"),
        (["four layers", "Muon", "--seeds", "1"], "tricks-seeds-1-names-four-layers-muon"),
        (["x" * 300], f"tricks-names-{'x' * 300}"),
    ],
)
def test_a_measurement_with_other_options_gets_its_own_files(words, name, run):
    [(options, path)], code, _ = run(*words)
    assert code == 0
    assert path == results_path(name)
    assert len(path.name) < 250
    assert path.parent.parent == command.RESULTS
    assert isinstance(options.seconds, float)
    # with the same beginning
    long = {results_path("tricks", {"names": "x" * 300 + end}).name for end in "ab"}
    assert len(long) == 2
    assert all(len(name) <= command.LONGEST_NAME for name in long)


def test_wrong_input_is_one_line(run):
    def failing(options, path):
        raise ConfigError("no such text")

    wrong = [(["--seeds", word], None, "--seeds") for word in ("x", "0")] + [
        (["--seconds", "0"], None, "out of range")
    ]
    for words, main, message in [*wrong, ([], failing, "no such text")]:
        calls, code, output = run(*words, main=main)
        assert (calls, code) == ([], 2)
        assert message in output.err
        assert len(output.err.splitlines()) == 1


def test_only_code_that_is_not_committed_marks_the_commit(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a", *words], check=True
        )

    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "package").mkdir()
    copies = set()
    for text in ("1", "2", "2"):  # without git, the code itself is named
        (tmp_path / "package" / "code.py").write_text(text)
        copies.add(command.commit())
    (tmp_path / "package" / "code.py").unlink()
    assert len(copies) == 2
    assert all(name.startswith("files-") and not name.endswith("+") for name in copies)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")
    (tmp_path / "notes.txt").write_text("mine")
    assert not command.commit().endswith("+")
    (tmp_path / "package" / "new.py").touch()
    assert command.commit().endswith("+")


def test_a_duration_is_in_words():
    words = {10: "less than a minute", 61: "about 1 minute", 200: "about 3 minutes"}
    assert {seconds: command.in_minutes(seconds) for seconds in words} == words


def test_results_are_json_with_the_table_and_the_facts_of_the_machine(tmp_path, capsys):
    table = [{"step": "a", "speed": "1"}, {"step": "b", "share": "2%"}]
    save_results(tmp_path / "machine" / "x", table, ratio=float("nan"))
    content = json.loads((tmp_path / "machine" / "x.json").read_text(), parse_constant=pytest.fail)
    assert content["ratio"] is None
    assert content["table"] == table
    assert {"machine", "torch", "threads", "commit", "date"} <= set(content["machine"])
    rows = "| step | speed | share |\n| --- | --- | --- |\n| a | 1 |  |\n| b |  | 2% |\n"
    assert rows in capsys.readouterr().out
