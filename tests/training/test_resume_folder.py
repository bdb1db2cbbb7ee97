"""`experiment.py --resume` in this process: what it changes, warns about and refuses."""

import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from experiment import main
from runs.run_folder import RunFolder
from tests.conftest import limited, train_in, written
from training.checkpoint import Content, load_checkpoint, load_last, load_weights


@pytest.fixture(scope="module")
def original(tmp_path_factory, text_file):
    """The folder of a run of two steps, with two evaluations."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("original") / "run"
    return train_in(folder, data__corpus=text_file, training__max_steps=2).run.path


@pytest.fixture
def run(original, tmp_path, corpus_file):
    """A copy of that run, with its own copy of the text."""
    run = RunFolder(
        shutil.copytree(original, tmp_path / "logs" / "mlm" / "0123456789ab")
    )
    set_keys(run, {"data.corpus": str(corpus_file), "logs": str(tmp_path / "logs")})
    return run


def set_keys(run, keys):
    run.save_config(run.config() | keys)


def resume(run, *keys, steps=4):
    return main(["--resume", str(run.path), f"training.max_steps={steps}", *keys])


def last_step(run):
    return run.metrics()[-1]["step"]


def contents(folder):
    files = [
        path for path in folder.rglob("*") if path.is_file() and path.name != "lock"
    ]
    return {path: path.read_bytes() for path in files}


@pytest.fixture
def refused(run, refusal):
    """The line with which a resume is refused; it must leave every file as it is."""

    def refuse(key="training.max_steps=4"):
        before = contents(run.path)
        error = refusal(main, "--resume", run.path, key)

        assert contents(run.path) == before

        return error

    return refuse


def test_a_longer_budget_is_recorded(run, refused):
    run.save_status("completed")
    assert "has spent its budget" in refused("training.max_steps=2")

    older = run.config()
    del older["training.muon_momentum"]  # of a version that did not have this key
    run.config_path.write_text(yaml.safe_dump(older))

    assert resume(run, steps=40) == 0
    assert last_step(run) == 40
    assert run.config() == older | {
        "training.max_steps": 40,
        "training.muon_momentum": 0.95,
    }
    assert run.events()[-1]["changed"] == {"training.max_steps": [2, 40]}


def test_a_run_that_was_killed_after_its_last_step_is_completed(run):
    """Everything is trained and saved; only the curves and the status are missing."""
    rows = run.metrics()
    weights = load_last(run.checkpoints).weights
    run.save_status("in progress")
    run.curves_path.unlink()
    (run.checkpoints / "new.safetensors.99.tmp").touch()
    (run.checkpoints / ".tmpA1b2C3").touch()

    assert resume(run, steps=2) == 0
    assert not list(run.checkpoints.glob("*.tmp*"))
    assert run.curves_path.exists()
    assert run.status()["status"] == "completed"
    assert run.metrics() == rows

    torch.testing.assert_close(
        load_last(run.checkpoints).weights, weights, rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("stopped", "before", "after", "steps"), [(3, 1, 1, [3]), (7, 3, 2, [3, 6, 7])]
)
def test_a_run_beyond_its_budget_gets_its_last_evaluation(
    train, tmp_path, stopped, before, after, steps
):
    keys = {"training__max_steps": 9, "training__evaluations": before}
    run = train(
        stop_after=stopped, folder=tmp_path / "logs" / "mlm" / "stopped", **keys
    ).run
    run.save_status("interrupted")

    assert resume(run, f"training.evaluations={after}", steps=2) == 0
    assert [row["step"] for row in run.metrics()] == steps
    assert run.status()["status"] == "completed"


def test_a_bound_is_not_compared_with_a_loss(run):
    """`loss.bound` decides in the new stages."""
    # a `loss.valid` below any bound
    change_last(run, lambda state: state.update(best_loss=0.0))
    assert (
        resume(
            run, "training.stages=[{until: 1, seq_len: 8, masking_prob: [0.2, 0.9]}]"
        )
        == 0
    )

    best = load_checkpoint(run.checkpoints / "best.safetensors")
    assert best.state["step"] > 2


def test_a_text_that_has_moved_is_recorded(run, corpus_file):
    moved = corpus_file.rename(corpus_file.with_name("moved.txt"))
    set_keys(run, {"data.corpus": str(moved)})

    assert resume(run) == 0
    assert run.corpus()["name"] == str(moved)


def truncate(path):
    """Cut a file near its middle, before the colon of a key: never between two lines."""
    content = path.read_bytes()
    middle = len(content) // 2
    colon = content.find(b":", middle)
    os.truncate(path, max(middle, colon))


DAMAGES = {
    "truncated": truncate,
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"\xffgarbage\n" * 9),
}


@pytest.mark.parametrize("damage", [DAMAGES["truncated"], DAMAGES["deleted"]])
def test_a_damaged_last_checkpoint_is_replaced_by_the_previous_one(
    run, printed, damage
):
    assert resume(run) == 0  # now there are two checkpoints

    last = run.checkpoints / "last.safetensors"

    # of the previous checkpoint; that of step 4 has spent the budget
    for step in (2, 4):
        damage(last)
        output = printed(main, "--resume", run.path, "training.max_steps=4")

        assert output.count("warning: the last checkpoint is damaged or missing") == 1
        assert f"resuming at step {step}" in output
        assert load_checkpoint(last).state["step"] == last_step(run) == 4
        assert run.status()["status"] == "completed"

        shutil.copy(last, run.checkpoints / "previous.safetensors")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_run_is_resumed_whichever_other_file_is_damaged_or_the_line_names_it(
    run, refused, damage
):
    needed = [run.config_path, run.corpus_path, run.metrics_path]
    for path in needed:
        content = path.read_bytes()
        damage(path)

        assert (str(path) if path.exists() else str(run.path)) in refused()

        path.write_bytes(content)

    needed.append(run.checkpoints / "last.safetensors")
    for path in run.path.rglob("*"):
        if path.is_file() and path not in needed:
            damage(path)

    assert resume(run) == 0
    assert last_step(run) == 4
    assert load_weights(run.checkpoints / "best.safetensors")


def change_last(run, change):
    """Save the last checkpoint again, with another state."""
    path, weights, state = load_checkpoint(run.checkpoints / "last.safetensors")
    change(state)
    Content.of(weights, state).save(path)


def another_text(run):
    with open(run.config()["data.corpus"], "a") as file:
        file.write("more")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (another_text, "has changed since the run was trained on it"),
        (lambda run: shutil.rmtree(run.checkpoints), "holds no checkpoint"),
        (
            lambda run: set_keys(run, {"model.d_model": 64}),
            "the weights of a different model",
        ),
    ],
)
def test_a_run_that_cannot_be_resumed_is_refused_in_one_line(
    run, refused, damage, message
):
    damage(run)
    assert message in refused()


def test_a_checkpoint_of_another_version_is_refused_in_one_line(
    run, refused, monkeypatch
):
    monkeypatch.setattr("training.checkpoint.FORMAT", 0)
    assert "last.safetensors does not have format" in refused()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("step", None),
        ("n_evaluations", 1.5),
        ("best_loss", "abc"),
        ("seconds", float("nan")),
        ("evaluated_at", {}),
        ("sums loss", "abc"),
        ("sums loss", torch.zeros(3)),
        ("training_step source", {}),
        ("training_step optimizers 0 state 0 exp_avg", torch.zeros(3)),
        ("callbacks knobs knobs learning_rate_factor", "abc"),
        ("callbacks knobs knobs masking_prob", 7.0),
        ("callbacks health n_near_unigram", "abc"),
        ("callbacks run environment", [1]),
        ("callbacks run sizes metrics.jsonl", -1),
    ],
)
def test_a_state_with_a_wrong_value_is_refused_in_one_line(run, refused, place, value):
    def change(state):
        *parents, last = [int(key) if key.isdigit() else key for key in place.split()]
        for key in parents:
            state = state[key]

        state[last] = value

    change_last(run, change)

    assert "last.safetensors is " in refused()


def test_a_run_that_is_being_trained_is_not_resumed(run, refused):
    with run.locked():
        assert "is being trained by another process right now" in refused()


def test_other_threads_and_another_precision_are_warned_about(run, printed):
    torch.set_num_threads(2)
    set_keys(run, {"training.precision": "bfloat16"})
    output = printed(main, "--resume", run.path, "training.max_steps=4")
    (warning,) = [line for line in output.splitlines() if line.startswith("warning: ")]

    assert "threads was 1, is 2" in warning
    assert "training.precision was float32, is bfloat16" in warning
    assert warning.endswith(": the run will not continue bit for bit")


@pytest.mark.parametrize("target", ["archive/0123456789ab", "renamed"])
def test_a_moved_run_is_resumed_in_its_own_folder_every_time(run, tmp_path, target):
    moved = RunFolder(tmp_path / "logs" / target)
    moved.path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run.path, moved.path)
    run.path.mkdir()

    for folder in (run.path, moved.path):
        (folder / "run.pid").write_text("1")  # left there by labml

    for steps in (4, 6):
        assert resume(moved, steps=steps) == 0
        assert last_step(moved) == steps

    assert [path.name for path in run.path.iterdir()] == ["run.pid"]
    assert "name: mlm" in (moved.path / "run.yaml").read_text()


def test_a_state_that_cannot_be_saved_at_the_end_is_reported_in_one_line(run, refusal):
    """A limit on the size of files stands for a full disk: a row can be written, a checkpoint
    cannot."""
    before = contents(run.checkpoints)
    with limited(resource.RLIMIT_FSIZE, 20_000):
        error = refusal(main, "--resume", run.path, "training.max_steps=4", code=1)

    assert "make room for " in error
    assert contents(run.checkpoints) == before
    assert run.status()["status"] == "crashed"
    assert resume(run) == 0  # once there is room


@pytest.mark.parametrize("n_characters", [2_551, 5_110])
def test_a_text_with_one_validation_window_is_trained_and_resumed(
    train, tmp_path, sentences, printed, request, n_characters
):
    path = written(tmp_path / "short.txt", sentences[:n_characters])
    folder = tmp_path / "logs" / "mlm" / "short"
    trained = train(data__corpus=path, training__max_steps=2, folder=folder)

    assert trained.configs.data.validation_set.n_windows == 1

    run = trained.run
    assert run.metrics()[-1]["loss.valid_stderr"] is None

    run.curves_path.unlink(missing_ok=True)
    request.getfixturevalue("draws")
    output = printed(main, "--resume", run.path, "training.max_steps=4")

    assert last_step(run) == 4
    assert run.curves_path.read_bytes().startswith(b"\x89PNG")
    assert "loss.valid" in output
    assert "nan" not in output
