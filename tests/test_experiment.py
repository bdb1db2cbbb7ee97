"""The program as a user runs it."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys

import pytest

from configs.command_line.command import PRESETS, read_config, resolve
from configs.command_line.program import run_main
from configs.experiment import configs_of
from configs.keys import ConfigError
from data.corpus import ENVIRONMENT_VARIABLE
from experiment import main
from model.labml_transformer import LabmlTransformer
from runs.delivery import dashboard_address
from runs.errors import InputError, StoppedError
from runs.files import ROOT
from runs.run_folder import RunFolder
from tests.conftest import (
    config_file,
    configs_for,
    limited,
    one_line,
    only_run,
    without_times,
    written,
)
from training.tracking import PlainDestination


def words_for(folder, corpus, n_steps, **keys):
    """The command of a small run, which writes its logs to a folder."""
    keys |= {"data.corpus": corpus, "training.max_steps": n_steps}
    return ["experiment.py", "--config", config_file(folder, keys)]


@pytest.fixture(scope="module")
def first(tmp_path_factory, session_cache, fork_server, sentences):
    """A run of `python experiment.py` in a pipe that takes ASCII only, with its output."""
    folder = tmp_path_factory.mktemp("first")
    corpus = written(folder / "théâtre $x_{.txt", sentences.replace("a", "á"))
    keys = {"seed": 7, "model.dropout": 0.1, "sample.every_evaluations": 1}
    words = words_for(folder, corpus, 8, **keys)
    environment = {"HOME": str(folder), "labml_app_url": ""}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii"}
    output = fork_server.start(words, environment, draws=True).output()
    return only_run(folder / "logs"), output


def test_a_run_from_end_to_end_in_an_ascii_pipe(first):
    run, output = first
    assert "\r" not in output
    assert "\x1b" not in output
    lines = output.splitlines()
    # one line per evaluation
    assert sum(line.startswith("step ") for line in lines) == 2
    assert any(re.search(r"\[.(!.)?\]", line) for line in lines)  # a sample
    assert "\\xe1" in output  # á, which ASCII lacks
    assert str(run.path) in output
    corpus = run.config()["data.corpus"]
    assert corpus.endswith("/théâtre $x_{.txt")
    assert [row["corpus"] for row in run.metrics()] == [corpus] * 2
    assert run.curves_path.read_bytes().startswith(b"\x89PNG")


def test_config_yaml_repeats_the_run_and_another_seed_does_not(first, train):
    run, _ = first
    for seed, is_same in ((7, True), (8, False)):
        again = train(
            configs_of(resolve(read_config(run.config_path), {"seed": seed}))
        ).run
        assert (without_times(again) == without_times(run)) == is_same


def test_a_terminal_shows_progress_with_the_time_left_and_colored_guesses(
    corpus_file, fork_server, tmp_path
):
    words = words_for(tmp_path, corpus_file, 30, **{"sample.every_evaluations": 1})
    process = fork_server.start(words, merged=True, terminal=True)
    shown = []
    # how Linux reports that the other side has closed
    with contextlib.suppress(OSError):
        shown.extend(process.stdout)
    assert process.wait(timeout=60) == 0
    text = "".join(shown)
    assert re.search(r"training +\d+%\|.*\| \[\d\d:\d\d<\d\d:\d\d, step \d+\]", text)
    assert "\x1b[32m" in text or "\x1b[31m" in text  # a right or a wrong guess
    assert "loss.valid" in text


def test_runs_that_start_together_need_no_home_folder(
    tmp_path, corpus_file, fork_server
):
    """labml would list the repository in ~/.labml, where runs that start together delete each
    other's files."""
    words = words_for(tmp_path, corpus_file, 1)
    programs = [fork_server.start(words, {"HOME": "/proc"}) for _ in range(3)]
    for program in programs:
        output = program.output().splitlines()
        assert output[0].startswith("config ")
        lines = (
            "run ",
            "reference ",
            "2 evaluations ",
            "step ",
            "evaluations ",
            "loss.valid ",  # one step leaves it above counting
            "done ",
        )
        shown = [line for line in output[1:] if line.startswith(lines)]
        assert shown == output[1:]
        assert any(line.startswith("loss.valid ") for line in shown)
    folders = (tmp_path / "logs" / "mlm").iterdir()
    assert [RunFolder(path).metrics()[-1]["step"] for path in folders] == [1] * 3


def test_a_copy_of_the_files_trains_without_git_and_a_home_folder_that_can_be_written(
    tmp_path, corpus_file
):
    """On machines with GPUs, there may be neither."""
    others = shutil.ignore_patterns(
        ".*", "logs", "cache", "node_modules", "tests", "__pycache__"
    )
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=others)
    words = [
        "experiment.py",
        "--preset=quick",
        f"data.corpus={corpus_file}",
        "device=cpu",
    ]
    words += ["training.compile=false", "training.max_steps=2", "model.ngrams=0"]
    environment = os.environ | {"HOME": "/proc/nothing"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "\ndone (" in done.stdout, done.stderr
    assert "git repository" not in done.stdout


def test_the_annotated_recipe_trains_on_current_labml(corpus_file, train):
    corpus_file.write_text(corpus_file.read_text()[:4_000])  # its evaluation is slow
    keys = {
        "data.corpus": str(corpus_file),
        "training.max_steps": 3,
        "training.evaluations": 1,
    }
    configs = configs_of(resolve(read_config(PRESETS / "annotated.yaml"), keys))
    assert isinstance(configs.network, LabmlTransformer)
    (row,) = train(configs).run.metrics()
    assert row["seq_len"] == 32
    assert row["chars"] == 3 * 64 * 32
    assert row["learning_rate"] == 128**-0.5 * 3 * 2_000**-1.5  # Noam's third step


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("--help", 0),
        ("model.d_modle=256", 2),
        ("model.n_heads=5", 2),
        ("data.tokens=byte", 2),
    ],
)
def test_help_and_wrong_keys_do_not_wait_for_pytorch(word, code):
    command = [sys.executable, "-X", "importtime", "experiment.py", "device=cpu", word]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    imported = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)
    assert done.returncode == code
    assert "configs.checks" in imported
    assert "torch" not in imported


@pytest.mark.parametrize(
    "content",
    ["", "3", "app_url http://host", "app_url: [1]", "app_url: 5005", "a: b: c"],
)
def test_a_wrong_labml_yaml_is_refused_in_one_line(tmp_path, monkeypatch, content):
    written(tmp_path / ".labml.yaml", content)
    monkeypatch.setattr("runs.delivery.ROOT", tmp_path)
    monkeypatch.delenv("labml_app_url")
    with one_line(InputError, "http://127.0.0.1:5005"):
        dashboard_address()


LABML = {"model.architecture": "labml_nn"}
WRONG = {
    # before the corpus is loaded
    "did you mean masking.masking_prob?": {"masking.masking_probb": 0.2},
    "'Ω' is not in the vocabulary": {"masking.no_mask_tokens": "Ω"},  # after it
    # tests/data/test_corpus.py has the other reasons
    "No such file": {"data.corpus": "/nowhere.txt"},
    "FOLIO_TINY_SHAKESPEARE: cannot read": {"data.corpus": "tiny_shakespeare"},
    "heads of even size": {"model.d_model": 12, "model.n_heads": 4},
    "model.d_model=9 is odd": LABML | {"model.d_model": 9, "model.n_heads": 3},
    "reads at most 5,000 tokens, but training.stages has windows of 8,192": LABML
    | {"training.stages": [{"until": 1.0, "seq_len": 8_192}]},
    "too few for windows": {"training.stages": [{"until": 1.0, "seq_len": 65_536}]},
    "sample.prompts: the character 'Ω'": {
        "sample.prompts": ["the Ω"],
        "sample.every_evaluations": 1,
    },
}


@pytest.fixture
def refused(tmp_path, refusal):
    """The line with which `main` refuses keys; nothing must be written."""

    def refuse(*words, **keys):
        config = config_file(tmp_path, {"training.chars_per_step": 65_536, **keys})
        error = refusal(main, "--config", config, *words)
        assert not (tmp_path / "logs").is_dir()
        return error

    return refuse


@pytest.mark.parametrize(("message", "keys"), WRONG.items())
def test_keys_that_do_not_fit_are_refused_in_one_line(
    refused, monkeypatch, text_file, message, keys
):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "/nowhere.txt")
    assert message in refused(**{"data.corpus": text_file} | keys)


def test_a_text_that_is_too_short_is_refused_in_one_line(refused, tmp_path, sentences):
    corpus = written(tmp_path / "short.txt", sentences[:500])
    assert "at least 2,551 characters" in refused(**{"data.corpus": corpus})


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:5005", "localhost", "http://[::1/api", "ftp://host/", "http://"],
)
def test_a_wrong_address_is_refused_in_one_line(
    refused, monkeypatch, text_file, address
):
    monkeypatch.setenv("labml_app_url", address)
    assert "is not of the form http://127.0.0.1:5005" in refused(
        **{"data.corpus": text_file}
    )


def test_a_run_is_resumed_with_the_same_text_elsewhere(tmp_path, corpus_file, refusal):
    assert main(words_for(tmp_path, corpus_file, 1)[1:]) == 0
    run = only_run(tmp_path / "logs")
    moved = corpus_file.rename(tmp_path / "moved.txt")
    words = ["--resume", str(run.path), "training.max_steps=2", f"data.corpus={moved}"]
    assert main(words) == 0
    assert run.config()["data.corpus"] == str(moved)
    moved.write_text(moved.read_text() + "another text")
    assert "has changed" in refusal(main, *words[:2], "training.max_steps=3")


def test_a_logs_folder_that_is_a_file_is_refused_in_one_line(
    refused, text_file, tmp_path
):
    (tmp_path / "logs").write_text("in the way")
    assert "set logs to a folder" in refused(**{"data.corpus": text_file})
    assert (tmp_path / "logs").read_text() == "in the way"


def test_a_disk_that_is_full_while_a_run_is_created_ends_in_one_line(
    corpus_file, tmp_path, monkeypatch, capsys
):
    """A limit on the size of files stands for the disk: the folder can be made, config.yaml cannot
    be written."""
    monkeypatch.setattr(sys, "argv", words_for(tmp_path, corpus_file, 1))
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run_main` replaces it
    with limited(resource.RLIMIT_FSIZE, 1_000), pytest.raises(SystemExit, match=r"^1$"):
        run_main(main)
    assert re.fullmatch(
        r"experiment\.py: .*File too large.*\n", capsys.readouterr().err
    )


def test_a_full_disk_below_the_output_is_not_named_as_that_of_the_run(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with one_line(StoppedError, "cannot write the output"):
            PlainDestination().log(["a line"], is_new_line=True, is_reset=False)
        with contextlib.suppress(OSError):
            full.close()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("inputs", r"must return logits \[3, \d+\], not \[2, 256\]"),
        ("inputs[positions, 99]", r"but raises own\.py, line 5: IndexError"),
    ],
)
def test_a_model_that_breaks_the_contract_is_refused(
    tmp_path, text_file, returned, message
):
    content = f"""import torch

class Broken(torch.nn.Linear):
    def forward(self, inputs, positions):
        return {returned}

def broken(c):
    return Broken(2, 2)
"""
    path = written(tmp_path / "own.py", content)
    configs = configs_for(text_file, model__architecture=f"{path}:broken")
    with pytest.raises(ConfigError, match=message):
        _ = configs.network
