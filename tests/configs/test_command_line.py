import re
import signal

import pytest
import yaml

from board.comparison import SAME_EXPERIMENT
from configs.command_line.command import (
    SETTINGS,
    ignored_in_comparisons,
    parse,
    presets,
    read_config,
    resolve,
    run_seeds,
)
from configs.keys import ConfigError
from tests.conftest import one_line, written


@pytest.mark.parametrize(
    "name",
    [
        "annotated",
        "base",
        "gpu",
        "gpu-base",
        "modernbert",
        "quick",
        "write",
        "write-gpu",
    ],
)
def test_presets_are_valid_and_resolve_to_themselves(name, tmp_path):
    assert name in presets()

    values = parse(
        ["--preset", name, "training.max_steps=5", "seed=9", "data.corpus=play.txt"]
    ).values
    assert set(values) == set(SETTINGS)

    path = written(tmp_path / "config.yaml", yaml.safe_dump(values))
    assert parse(["--config", str(path)]).values == values


def test_without_a_preset_the_reason_for_the_choice_is_given():
    command = parse(["seed=3"])
    assert command.source.startswith(
        ("preset quick: found no CUDA", "preset gpu: found a CUDA device")
    )
    assert command.values["seed"] == 3
    assert command.overridden == {"seed": 3}
    assert (
        parse(["device=cpu"]).source
        == "preset quick: device=cpu (--preset chooses another)"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"training.max_steps": None, "training.max_seconds": 180.0}),
        (
            ["training.max_steps=500"],
            {"training.max_steps": 500, "training.max_seconds": None},
        ),
        (
            ["training.max_steps=9", "training.max_chars=1e6"],
            {"training.max_steps": 9, "training.max_chars": 10**6},
        ),
        (["model.dropout=0.1", "model.dropout=1e-1"], {"model.dropout": 0.1}),
    ],
)
def test_keys_take_the_place_of_the_presets(words, expected):
    """A budget takes the place of all budgets."""
    values = parse(["--preset", "quick", *words]).values
    assert expected.items() <= values.items()


def test_keys_and_options_come_in_any_order():
    """The last value of an option counts: `--seeds` starts each run with the command line and
    --seeds=1 behind it."""
    command = parse(["seed=1", "--preset", "quick", "model.d_ff=64", "--seeds", "3"])
    assert (command.values["seed"], command.values["model.d_ff"], command.n_seeds) == (
        1,
        64,
        3,
    )
    assert parse(["--preset", "quick", "--seeds", "3", "--seeds=1"]).n_seeds == 1


def test_help_lists_every_key(capsys):
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])

    text = capsys.readouterr().out
    for name, setting in SETTINGS.items():
        assert f"\n{'*' if setting.key.resume else ' '} {name}=" in text
        assert f"\n      {setting.key.text}" in text

    assert "model.n_heads=4\n" in text
    assert "preset annotated: 8\n" in text
    assert "preset quick: 180.0\n" not in text  # the same as the default


def test_numbers_in_yaml_may_be_written_as_python_writes_them(tmp_path):
    """And an empty file is the defaults."""
    # a text, by YAML 1.1
    path = written(tmp_path / "config.yaml", "training.learning_rate: 1e-3\n")
    assert read_config(path) == {"training.learning_rate": 0.001}

    path.write_text("# nothing\n")
    assert resolve(read_config(path), {}) == resolve({}, {})


# a part of the error, and the command
WRONG = {
    "model.d_model=big must be an integer": "model.d_model=big",
    "masking.masking_prob=1.5 must be a number above 0": "masking.masking_prob=1.5",
    "model.n_heads=5 does not divide model.d_model=128": "model.d_model=128 model.n_heads=5",
    "training.stages is empty": "training.stages=[]",
    "row 1 is not of the form": "training.stages=[64]",
    "has no seq_len": "training.stages=[{until: 1.0}]",
    "must be a list in YAML": "training.stages=[2024-13-45]",
    "seq_len stands twice": "training.stages=[{until: 1, seq_len: 8, seq_len: 9}]",
    "row 2: until=0.3": "training.stages=[{until: 0.7, seq_len: 8}, {until: 0.3, seq_len: 64}]",
    "until=1.0, not 0.9": "training.stages=[{until: 0.9, seq_len: 64}]",
    "until=True": "training.stages=[{until: true, seq_len: 64}]",
    "seq_len=0": "training.stages=[{until: 1.0, seq_len: 0}]",
    "seq_len=100": "training.stages=[{until: 1.0, seq_len: 100}]",
    "did you mean seq_len?": "training.stages=[{until: 1.0, seq_len: 64, seqlen: 64}]",
    "a space after the colon": "training.stages=[{until:1.0, seq_len:64}]",
    "masking_prob=2": "training.stages=[{until: 1.0, seq_len: 64, masking_prob: [0.5, 2]}]",
    "masking_prob=x": "training.stages=[{until: 1.0, seq_len: 64, masking_prob: [0.5, x]}]",
    "masking_prob=[] is empty": "training.stages=[{until: 1.0, seq_len: 64, masking_prob: []}]",
    "choose one of annotated, base, gpu, gpu-base, modernbert, quick": "--preset=quik",
    "not allowed with": "--preset=quick --config=x.yaml",
    "masking.no_change_prob is above 1": "masking.randomize_prob=0.6 masking.no_change_prob=0.6",
    "training.decay is above 1": "training.warmup=0.6 training.decay=0.6",
    "logs is empty": "logs=",
    "requires masking.mixture": "masking.strategy=mixture",
    "masking.strategy=mixture requires": "masking.mixture=[{until: 1.0, span: 1}]",
    "unknown strategy 'spam'": "masking.strategy=mixture masking.mixture=[{until: 1.0, spam: 1}]",
    "until=nan": "masking.strategy=mixture masking.mixture=[{until: .nan, span: 1}]",
    "span=-1": "masking.strategy=mixture masking.mixture=[{until: 1.0, span: -1}]",
    "span=True": "masking.strategy=mixture masking.mixture=[{until: 1.0, span: true}]",
    "not all be 0": "masking.strategy=mixture masking.mixture=[{until: 1.0, span: 0}]",
    "no budget is set": "training.max_seconds=none",
    "cannot read nowhere.yaml": "--config=nowhere.yaml",
    "model.d_ff has two values, 64 and 32": "model.d_ff=64 model.d_ff=32",
    "is not of the form key=value": "model.d_model",
    "'--model.d_model': did you mean model.d_model?": "--model.d_model=256",
    "--seeds: 0 is out of range": "--seeds=0",
    "'tpu' is not a device": "device=tpu",
    "'cuda:00' is not a device": "device=cuda:00",
    "cuda": "device=cuda:99",
    "'../elsewhere' cannot name a folder": "name=../elsewhere",
    "sample.prompts must be a list of texts": "sample.prompts=[1, 2]",
    "choose one": "objective.nsp=true objective.sop=true",
    "data.sampling=random": "objective.sop=true data.sampling=shuffled",
    "needs 5": "objective.sop=true training.stages=[{until: 1.0, seq_len: 4}]",
    "callbacks: my.py is not of the form file.py:name": "callbacks=[my.py]",
    "data.batches: my.py is not of the form file.py:name": "data.batches=my.py",
}


@pytest.mark.parametrize(("message", "command"), WRONG.items())
def test_wrong_input_is_one_clear_line(command, message):
    base = [] if command.startswith("--") else ["--preset=quick"]
    words = re.split(r" (?=[\w.]+=|--)", command)

    with one_line(ConfigError, re.escape(message)):
        parse([*base, *words])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "seed: 1\nname: &a x\nlogs: *a\n",
            "aliases and tags are not accepted in line 3",
        ),
        ("seed: 1\nname: x\nseed: 1\n", "the key seed stands twice in line 3"),
        (
            "training.stages:\n- {until: 1,\n seq_len: 8, until: 1}\n",
            "the key until stands twice in line 3",
        ),
    ],
)
def test_the_error_of_a_file_names_the_line(tmp_path, content, message):
    path = written(tmp_path / "config.yaml", content)
    with pytest.raises(ConfigError, match=rf"config\.yaml is not YAML \({message}\)"):
        read_config(path)


@pytest.mark.parametrize("option", ["--config={run}/config.yaml", "--resume={run}"])
def test_a_wrong_key_in_a_file_is_refused_with_the_file(tmp_path, option):
    (tmp_path / "config.yaml").write_text(
        "training.max_steps: 5\ntraining.max_stepz: 2\n"
    )
    with one_line(ConfigError, r"/config\.yaml: .*training\.max_steps"):
        parse([option.format(run=tmp_path)])


def run_with(logs, content):
    """The path of a run with this config."""
    folder = logs / "mlm" / "uuid"
    folder.mkdir(parents=True)
    written(folder / "config.yaml", content)
    return str(folder)


@pytest.mark.parametrize("logs", ["~no_such_user/logs", "/dev/null/logs", "logs"])
def test_a_run_whose_folder_has_moved_is_resumed(tmp_path, logs):
    run = run_with(tmp_path / "moved", f"training.max_steps: 5\nlogs: {logs}\n")
    assert parse(["--resume", run]).values["logs"] == str(tmp_path / "moved")


def test_a_run_whose_folder_has_not_moved_keeps_its_key(tmp_path):
    logs = f"{tmp_path}/elsewhere/../logs"
    run = run_with(tmp_path / "logs", f"training.max_steps: 5\nlogs: {logs}\n")

    assert parse(["--resume", run]).values["logs"] == logs


def test_a_resumed_run_may_change_only_some_keys(tmp_path):
    content = "training.max_steps: 5\nmodel.d_ff: 64\nname: old\ndevice: cuda:99\nlogs: gone\n"
    run = run_with(tmp_path / "logs", content)
    changed = {"training.max_steps": 9, "device": "cpu", "training.max_seconds": 7}
    words = ["--resume", run, *(f"{key}={value}" for key, value in changed.items())]

    resumed = parse([*words, "model.d_ff=64"])

    assert changed.items() <= resumed.values.items()
    assert resumed.values["logs"] == str(resumed.logs) == str(tmp_path / "logs")

    wrong = [
        "seed=1",
        "model.d_ff=128",
        "masking.masking_prob=0.4",
        "training.learning_rate=0.1",
    ]

    with one_line(
        ConfigError, r"cannot change seed \(it is 0\).*model.d_ff \(it is 64\)"
    ) as error:
        parse([*words, *wrong])

    assert all(word.partition("=")[0] in str(error.value) for word in wrong)
    assert "max_steps" not in str(error.value)


def test_comparisons_ignore_the_keys_in_which_repeats_differ():
    expected = {"seed", "name", "logs", "tracking.also"}
    assert ignored_in_comparisons() == SAME_EXPERIMENT == expected


def test_a_masking_rate_on_the_command_line_takes_the_place_of_the_stages_own():
    rows = [
        {"until": 0.5, "seq_len": 32, "masking_prob": 0.3},
        {"until": 1.0, "seq_len": 64},
    ]
    base = {"training.stages": rows}
    values = resolve(base, {"masking.masking_prob": 0.4})

    assert values["training.stages"] == [{"until": 0.5, "seq_len": 32}, rows[1]]
    assert resolve(base, {})["training.stages"] == rows

    # together, a stage's own rate holds
    both = resolve(base, {"masking.masking_prob": 0.4, **base})
    assert both["training.stages"] == rows


@pytest.mark.parametrize(
    ("name", "end", "code"),
    [
        # a run that gets the signal with its parent
        ("SIGINT", "raise SystemExit(130)", 130),
        ("SIGINT", "", 130),
        ("SIGINT", "os.kill(os.getpid(), signal.SIGINT)", 130),
        # and one that gets it from its parent
        ("SIGTERM", "signal.pause()", 143),
    ],
)
def test_a_signal_ends_the_seeds_after_the_run_has_saved(tmp_path, name, end, code):
    content = f"""
import os, signal
signal.signal(signal.{name}, signal.SIG_DFL)
os.kill(os.getppid(), signal.{name})
{end}
"""
    program = str(written(tmp_path / "program.py", content))

    assert run_seeds(program, [], parse(["--seeds", "2"])) == code
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_after_the_last_seed_the_command_for_their_mean_is_printed(tmp_path, capfd):
    folder = tmp_path / "logs"
    content = f"""
import os, sys
run = "{folder}/mlm/" + sys.argv[-1]
os.makedirs(run)
open(run + "/config.yaml", "w")
"""
    program = str(written(tmp_path / "program.py", content))
    words = ["seed=3", f"logs={folder}"]

    assert run_seeds(program, words, parse(["--seeds", "2", *words])) == 0

    made = f"{folder}/mlm/seed=3 {folder}/mlm/seed=4"
    assert capfd.readouterr().out.endswith(f"python evaluate.py {made}\n")
