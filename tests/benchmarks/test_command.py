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
        module = sys.modules["__main__"]
        monkeypatch.setattr(sys, "argv", ["tricks.py", *words])
        monkeypatch.setattr(module, "__file__", "benchmarks/tricks.py", raising=False)
        monkeypatch.setattr(module, "__doc__", "What it measures.")
        flag = {"action": "store_true"}
        options = {"seeds": 3, "seconds": 90.0, "names": {"nargs": "*", "default": []}}
        call = main or (lambda *arguments: calls.append(arguments))

        with pytest.raises(SystemExit) as exited:
            run_benchmark(call, unnamed={"search"}, **options, quick=flag, search=flag)

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
        (
            ["four layers", "Muon", "--seeds", "1"],
            "tricks-seeds-1-names-four-layers-muon",
        ),
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


def test_long_names_with_the_same_beginning_differ():
    names = {results_path("tricks", {"names": "x" * 300 + end}).name for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) <= command.LONGEST_NAME


def failing(options, path):
    raise ConfigError("no such text")


@pytest.mark.parametrize(
    ("words", "main", "reason"),
    [
        (["--seeds", "x"], None, "--seeds"),
        (["--seeds", "0"], None, "--seeds"),
        (["--seconds", "0"], None, "--seconds"),
        ([], failing, "no such text"),
    ],
)
def test_wrong_input_is_one_line(run, words, main, reason):
    calls, code, output = run(*words, main=main)
    assert calls == []
    assert code == 2
    assert reason in output.err
    assert len(output.err.splitlines()) == 1


def test_only_code_that_is_not_committed_marks_the_commit(tmp_path, monkeypatch):
    def git(*words):
        user = ["-c", "user.name=a", "-c", "user.email=a"]
        subprocess.run(["git", "-C", tmp_path, *user, *words], check=True)

    monkeypatch.setattr(command, "ROOT", tmp_path)
    code = tmp_path / "package" / "code.py"
    code.parent.mkdir()
    names = []

    for text in ("1", "2", "2"):  # without git, the code itself is named
        code.write_text(text)
        names.append(command.commit())

    assert names[0] != names[1] == names[2]
    assert names[0].startswith("files-")
    assert not names[0].endswith("+")

    code.unlink()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "first")

    (tmp_path / "notes.txt").write_text("mine")

    assert not command.commit().endswith("+")

    code.touch()
    assert command.commit().endswith("+")


def test_a_duration_is_in_words():
    assert command.in_minutes(10) == "less than a minute"
    assert command.in_minutes(61) == "about 1 minute"
    assert command.in_minutes(200) == "about 3 minutes"


def test_results_are_json_with_the_table_and_the_facts_of_the_machine(tmp_path, capsys):
    table = [{"step": "a", "speed": "1"}, {"step": "b", "share": "2%"}]
    save_results(tmp_path / "machine" / "x", table, ratio=float("nan"))
    content = json.loads(
        (tmp_path / "machine" / "x.json").read_text(), parse_constant=pytest.fail
    )

    assert content["ratio"] is None
    assert content["table"] == table
    assert {"machine", "torch", "threads", "commit", "date"} <= set(content["machine"])

    rows = (
        "| step | speed | share |\n| --- | --- | --- |\n| a | 1 |  |\n| b |  | 2% |\n"
    )
    assert rows in capsys.readouterr().out
