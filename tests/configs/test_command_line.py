import re
import signal
from pathlib import Path

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
    "name", ["annotated", "base", "gpu", "modernbert", "quick", "write", "write-gpu"]
)
def test_presets_are_valid_and_resolve_to_themselves(name: str, tmp_path):
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
    assert parse(["device=cpu"]).source == "preset quick: device=cpu (--preset chooses another)"


UNDERSTOOD = {
    "a preset's budget": ([], {"training.max_steps": None, "training.max_seconds": 180.0}),
    "a budget in its place": (
        ["training.max_steps=500"],
        {"training.max_steps": 500, "training.max_seconds": None},
    ),
    "two": (
        ["training.max_steps=9", "training.max_chars=1e6"],
        {"training.max_steps": 9, "training.max_chars": 10**6},
    ),
    "a repeated key": (["model.dropout=0.1", "model.dropout=1e-1"], {"model.dropout": 0.1}),
}


@pytest.mark.parametrize(("words", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_keys_take_the_place_of_the_presets(words, expected):
    values = parse(["--preset", "quick", *words]).values
    assert {key: values[key] for key in expected} == expected


def test_keys_and_options_come_in_any_order():
    """The last value of an option counts: `--seeds` starts each run with the command line and
    --seeds=1 behind it."""
    command = parse(["seed=1", "--preset", "quick", "model.d_ff=64", "--seeds", "3"])
    assert (command.values["seed"], command.values["model.d_ff"], command.n_seeds) == (1, 64, 3)
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


MIXTURE = "masking.strategy=mixture"
WRONG = {
    "wrong type": (["model.d_model=big"], "must be an integer from 2 to 16,384"),
    "masking_prob above 1": (["masking.masking_prob=1.5"], "masking.masking_prob=1.5: it must be a number above 0"),
    "seq_len of 0": (["training.stages=[{until: 1.0, seq_len: 0}]"], "seq_len=0 must be an integer from 2"),
    "n_heads": (["model.d_model=128", "model.n_heads=5"], "model.n_heads=5 does not divide model.d_model=128"),
    "order": (["training.stages=[{until: 0.7, seq_len: 8}, {until: 0.3, seq_len: 8}]"], "until=0.3 must be above 0.7"),
    "stages that end early": (["training.stages=[{until: 0.9, seq_len: 32}]"], "last row must have until=1.0"),
    "no stages": (["training.stages=[]"], "training.stages is empty"),
    "stages that are no rows": (["training.stages=[64]"], "is not of the form"),
    "stage without length": (["training.stages=[{until: 1.0}]"], "has no seq_len"),
    "stage with another key": (["training.stages=[{until: 1.0, seqlen: 64}]"], "did you mean seq_len?"),
    "stage without a space": (["training.stages=[{until:1.0,seq_len:64}]"], "YAML needs a space after the colon"),
    "stage's masking_prob": (["training.stages=[{until: 1, seq_len: 64, masking_prob: [0.5, 2]}]"], "masking_prob=2"),
    "a stage's text": (["training.stages=[{until: 1, seq_len: 64, masking_prob: [0.5, x]}]"], "masking_prob=x"),
    "none of a stage's": (["training.stages=[{until: 1, seq_len: 64, masking_prob: []}]"], "masking_prob=[] is empty"),
    "batch that does not divide": (["training.stages=[{until: 1.0, seq_len: 100}]"], "not a multiple of seq_len=100"),
    "preset": (["--preset", "quik"], "choose one of annotated, base, gpu, modernbert, quick"),
    "preset and config": (["--preset", "quick", "--config", "x.yaml"], "not allowed with"),
    "shares above 1": (["masking.randomize_prob=0.6", "masking.no_change_prob=0.6"], "no_change_prob is above 1"),
    "warmup and decay": (["training.warmup=0.6", "training.decay=0.6"], "warmup + training.decay is above 1"),
    "no logs": (["logs="], "logs is empty"),
    "a date that is none": (["training.stages=[2024-13-45]"], "must be a list in YAML"),
    "mixture of nothing": (["masking.strategy=mixture"], "needs masking.mixture"),
    "mixture's strategy": ([MIXTURE, "masking.mixture=[{until: 1.0, spam: 1}]"], "unknown strategy 'spam'"),
    "mixture's nan": ([MIXTURE, "masking.mixture=[{until: .nan, span: 1}, {until: 1.0, span: 1}]"], "until=nan must"),
    "mixture's share": ([MIXTURE, "masking.mixture=[{until: 1.0, span: -1}]"], "must be a number from 0 to 1e6"),
    "mixture without effect": (["masking.mixture=[{until: 1.0, span: 1}]"], "requires masking.strategy=mixture"),
    "no budget": (["training.max_seconds=none"], "no budget is set"),
    "config that is not there": (["--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
    "two values": (["model.d_ff=64", "model.d_ff=32"], "model.d_ff has two values, 64 and 32: give one"),
    "a row's two lengths": (["training.stages=[{until: 1, seq_len: 8, seq_len: 9}]"], "the key seq_len stands twice"),
    "no equals sign": (["model.d_model"], "is not of the form key=value"),
    "key with dashes": (["--model.d_model=256"], "unknown key '--model.d_model': did you mean model.d_model?"),
    "seeds": (["--preset", "quick", "--seeds", "0"], "--seeds: 0 is out of range"),
    "device": (["device=tpu"], "is not a device"),
    "device with zeros": (["device=cuda:00"], "is not a device"),
    "device that is not here": (["device=cuda:99"], "cuda"),
    "name with a path": (["name=../elsewhere"], "cannot name a folder"),
    "prompts": (["sample.prompts=[1, 2]"], "must be a list of texts"),
    "two objectives": (["objective.nsp=true", "objective.sop=true"], "choose one"),
    "shuffled pairs": (["objective.sop=true", "data.sampling=shuffled"], "data.sampling=random"),
    "short pairs": (["objective.sop=true", "training.stages=[{until: 1.0, seq_len: 4}]"], "needs 5"),
    "a callback that is no reference": (["callbacks=[my.py]"], "callbacks: my.py is not of the form file.py:name"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_clear_line(arguments: list[str], message: str):
    with one_line(ConfigError, re.escape(message)):
        parse([*(["--preset", "quick"] if not arguments[0].startswith("--") else []), *arguments])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seed: 1\nname: &a x\nlogs: *a\n", "aliases and tags are not accepted in line 3"),
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


@pytest.mark.parametrize("arguments", [["--config", "{run}/config.yaml"], ["--resume", "{run}"]])
def test_the_former_name_of_a_key_in_a_file_is_refused_with_the_file_and_the_new_name(
    tmp_path, arguments
):
    (tmp_path / "config.yaml").write_text("training.max_steps: 5\ntraining.accumulation: 2\n")
    with pytest.raises(
        ConfigError, match=r"/config\.yaml: unknown key .*did you mean training\.grad_accum_steps\?"
    ):
        parse([word.format(run=tmp_path) for word in arguments])


@pytest.mark.parametrize("logs", ["~no_such_user/logs", "/dev/null/logs", "logs"])
def test_a_run_whose_folder_has_moved_is_resumed(tmp_path, logs):
    run = tmp_path / "moved" / "mlm" / "uuid"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(f"training.max_steps: 5\nlogs: {logs}\n")
    assert parse(["--resume", str(run)]).values["logs"] == str(tmp_path / "moved")


def test_a_resumed_run_may_change_only_some_keys(tmp_path):
    run = tmp_path / "logs" / "mlm" / "uuid"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(
        "training.max_steps: 5\nmodel.d_ff: 64\nname: old\ndevice: cuda:99\nlogs: gone\n"
    )
    words = ["--resume", str(run), "training.max_steps=9", "training.compile=false", "device=cpu"]
    resumed = parse([*words, "training.max_seconds=7", "sample.prompts=[a]", "model.d_ff=64"])
    assert (resumed.values["training.max_steps"], resumed.values["device"]) == (9, "cpu")
    assert (resumed.values["training.max_seconds"], resumed.values["sample.prompts"]) == (7, ["a"])
    assert resumed.values["logs"] == str(resumed.logs) == str(tmp_path / "logs")
    wrong = [
        "model.d_ff=128",
        "seed=1",
        "masking.masking_prob=0.4",
        "training.learning_rate=0.1",
    ]
    with pytest.raises(
        ConfigError, match=r"a resumed run cannot change .*seed \(it is 0\).*: start"
    ) as error:
        parse([*words, *wrong])
    assert "model.d_ff (it is 64)" in str(error.value)
    assert all(word.partition("=")[0] in str(error.value) for word in wrong)
    assert "max_steps" not in str(error.value)


def test_comparisons_ignore_the_keys_in_which_repeats_differ():
    assert ignored_in_comparisons() == SAME_EXPERIMENT == {"seed", "name", "logs"}


def test_a_masking_rate_on_the_command_line_takes_the_place_of_the_stages_own():
    base = {
        "training.stages": [
            {"until": 0.5, "seq_len": 32, "masking_prob": 0.3},
            {"until": 1.0, "seq_len": 64},
        ]
    }
    values = resolve(base, {"masking.masking_prob": 0.4})
    assert values["training.stages"] == [
        {"until": 0.5, "seq_len": 32},
        {"until": 1.0, "seq_len": 64},
    ]
    assert resolve(base, {})["training.stages"] == base["training.stages"]
    # said together, a stage's own rate holds
    both = resolve(base, {"masking.masking_prob": 0.4, **base})
    assert both["training.stages"] == base["training.stages"]


def kills_its_parent(path: Path, name: str, end: str) -> str:
    default, kill = (
        f"signal.signal(signal.{name}, signal.SIG_DFL)",
        f"os.kill(os.getppid(), signal.{name})",
    )
    return str(written(path, f"import os, signal\n{default}\n{kill}\n{end}\n"))


@pytest.mark.parametrize(
    "end", ["raise SystemExit(130)", "", "os.kill(os.getpid(), signal.SIGINT)"]
)
def test_ctrl_c_ends_the_seeds_after_the_run_has_saved(tmp_path, end):
    # a run that gets the signal with its parent
    program = kills_its_parent(tmp_path / "program.py", "SIGINT", end)
    assert run_seeds(program, [], parse(["--seeds", "2"])) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_reaches_the_run_of_a_seed(tmp_path):
    program = kills_its_parent(tmp_path / "program.py", "SIGTERM", "signal.pause()")
    assert run_seeds(program, [], parse(["--seeds", "2"])) == 143


def test_after_the_last_seed_the_command_for_their_mean_is_printed(tmp_path, capfd):
    folder = tmp_path / "logs"
    content = "import os, sys\n*_, logs, _, seed = sys.argv\nrun = f'{logs[5:]}/mlm/{seed}'\n"
    content += "os.makedirs(run)\nopen(f'{run}/config.yaml', 'w')\n"
    program, words = str(written(tmp_path / "program.py", content)), ["seed=3", f"logs={folder}"]
    assert run_seeds(program, words, parse(["--seeds", "2", *words])) == 0
    made = f"{folder}/mlm/seed=3 {folder}/mlm/seed=4"
    assert capfd.readouterr().out.endswith(f"python evaluate.py {made}\n")
