"""Trials from the command line to the answer."""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import trial
from data.corpus import load_corpus
from runs.files import ROOT
from tests.conftest import TINY
from trials.arms import CACHE, arm, checked_out, held_out

STEPS = ("--equal", "steps", "--both", "training.max_steps=4")


@pytest.fixture
def words(text_file, tmp_path):
    """The budget and the keys of small arms."""
    keys = {key: json.dumps(value) for key, value in TINY.items() if key != "device"}
    keys |= {"device": "cpu", "data.corpus": text_file, "logs": tmp_path / "logs"}
    return [*STEPS, *(f"{key}={value}" for key, value in keys.items())]


@pytest.fixture
def forked(fork_server, monkeypatch):
    """Runs start without importing PyTorch."""

    def run_program(root, words):
        program = fork_server.start(["experiment.py", *words], merged=True)
        return 0, program.output(), 100.0

    monkeypatch.setattr("trials.trial.run_program", run_program)


@pytest.fixture
def only_trial(tmp_path):
    """The content of the one trial.json of the test."""

    def read():
        (path,) = (tmp_path / "logs" / "trials").glob("*/trial.json")
        return path, json.loads(path.read_text())

    return read


def decide(capsys, *words):
    """The exit code of a trial, and what it prints."""
    capsys.readouterr()
    code = trial.main([*map(str, words)])
    return code, capsys.readouterr().out


def test_a_trial_ends_with_an_answer_and_continues_after_an_interruption(
    words, only_trial, forked, capsys
):
    change = "training.muon_learning_rate=0.0141"
    code, output = decide(capsys, change, "--most", 3, *words)

    assert code == 3
    assert "no difference as large as 0.01 nats" in output
    assert "3 pairs of 4 steps, equal steps: training.muon_learning_rate=" in output
    assert output.endswith(" against the preset\n")
    path, content = only_trial()
    assert not list(path.parent.glob("runs/*/*/checkpoints"))
    own = content["runs"][change]
    base = content["runs"]["the preset"]
    is_first = [
        one["began"] < other["began"] for one, other in zip(base, own, strict=True)
    ]
    assert is_first == [False, True, False]  # in turns

    lost = own.pop()
    folder = path.parent / "runs" / lost["run"]
    path.write_text(json.dumps(content))
    again, second_output = decide(capsys, change, "--most", 3, "--json", *words)
    _, continued = only_trial()

    assert again == 3
    assert json.loads(second_output)[0]["line"] in output
    assert continued["runs"]["the preset"] == base
    new = continued["runs"][change][-1]
    assert new["loss.valid"] == lost["loss.valid"]
    assert new["run"] != lost["run"]
    assert not folder.exists()


def test_an_interrupted_trial_says_how_to_continue(words, monkeypatch, refusal):
    def run_program(root, words):
        raise KeyboardInterrupt

    monkeypatch.setattr("trials.trial.run_program", run_program)
    line = refusal(trial.main, "model.n_layers=3", *words, code=130)
    assert "the same command continues" in line


def test_a_harmful_change_is_called_worse(words, forked, capsys):
    harmful = ["training.muon_learning_rate=1e-9", "training.learning_rate=1e-9"]
    code, output = decide(capsys, *harmful, "--most", 3, *words)
    assert code == 4
    assert "worse by" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a change"),
        (["model.layers=2"], "unknown key"),
        (["layers"], "neither key=value nor a file"),
        (["model.n_layers=2", "--equal", "chars"], "no other budget"),
        (
            ["model.n_layers=2", "training.max_seconds=9"],
            "the same training.max_seconds",
        ),
        (["model.n_layers=1"], "seed=1000"),
        (["seed=7"], "share seeds"),
        (["model.n_layers=2", "--by", "beauty"], "choose one of"),
        (["commit=0123"], "no such commit"),
        (["model.dropout=0.1", "--init-from", "nothing"], "nothing"),
        (["model.n_layers=2", "--both", "data.corpus=README.md", "--tasks"], "tasks"),
        (["model.n_layers=2", "--most", "2"], "at least 3"),
    ],
)
def test_wrong_words_are_refused_before_any_training(arguments, message, refusal):
    preset = [] if "--init-from" in arguments else ["--preset", "quick"]
    line = refusal(trial.main, *arguments, *preset, before="")
    assert message in line


def test_a_file_of_code_is_part_of_the_arm(tmp_path):
    path = tmp_path / "my.py"
    path.write_text("def loss(logits, labels):\n    return 0\n")
    words = [f"objective.loss={path}:loss"]
    before = arm(words, [], ["--preset=quick"]).fingerprint
    path.write_text("def loss(logits, labels):\n    return 1\n")
    assert arm(words, [], ["--preset=quick"]).fingerprint != before


def test_what_is_compiled_is_no_part_of_the_arm():
    """Else the runs of a trial, which fill the cache, would make it another trial."""
    before = arm(["seed=1"], [], ["--preset=quick"]).fingerprint
    CACHE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as folder:
        (Path(folder) / "compiled.py").write_text("pass\n")
        assert arm(["seed=1"], [], ["--preset=quick"]).fingerprint == before


def test_a_config_file_takes_the_place_of_the_preset(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model.n_layers: 3\ntraining.max_steps: 5\n")
    values = arm([str(path)], ["model.n_heads=2"], ["--preset=quick"]).values
    assert (values["model.n_layers"], values["training.max_steps"]) == (3, 5)
    assert values["model.n_heads"] == 2


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")
def test_a_commit_is_read_by_its_own_code():
    commit = subprocess.check_output(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], text=True
    ).strip()
    one = arm(["commit=HEAD"], ["training.max_steps=3"], ["--preset=quick"])
    assert one.root == checked_out("HEAD")
    assert one.root.name == commit
    assert one.values["training.max_steps"] == 3
    assert (one.root / "experiment.py").exists()


def test_a_holdout_is_measured_on_text_that_was_trained_on_before(text_file, tmp_path):
    before = load_corpus(str(text_file))
    path = held_out({"data.corpus": str(text_file)})
    after = load_corpus(str(path))
    n = len(before.validation)
    assert after.validation == before.training[-n:]
    assert after.training == before.training[:-n] + before.validation
