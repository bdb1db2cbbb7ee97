"""`experiment.py --resume` in this process: what it changes, warns about and refuses."""

import os
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from experiment import main
from runs.run_folder import RunFolder
from tests.conftest import limited, train_in, written
from training.checkpoint import Content, load_checkpoint, load_last, load_weights


@pytest.fixture(scope="module")
def original(tmp_path_factory, text_file: Path) -> Path:
    """The folder of a run of two steps, with two evaluations."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("original") / "run"
    return train_in(folder, data__corpus=text_file, training__max_steps=2).run.path


@pytest.fixture
def run(original: Path, tmp_path: Path, corpus_file: Path) -> RunFolder:
    """A copy of that run, with its own copy of the text."""
    run = RunFolder(shutil.copytree(original, tmp_path / "logs" / "mlm" / "0123456789ab"))
    run.save_config(
        run.config() | {"data.corpus": str(corpus_file), "logs": str(tmp_path / "logs")}
    )
    return run


def resume(run: RunFolder, steps: int = 4) -> int:
    return main(["--resume", str(run.path), f"training.max_steps={steps}"])


@pytest.fixture
def refused(run: RunFolder, refusal) -> Callable[..., str]:
    """The line with which a resume is refused; it must leave every file as it is."""

    def refuse(key: str = "training.max_steps=4") -> str:
        files = {
            path: path.read_bytes()
            for path in run.path.rglob("*")
            if path.is_file() and path.name != "lock"
        }
        error = refusal(main, "--resume", run.path, key)
        assert {path: path.read_bytes() for path in files} == files
        return error

    return refuse


def test_a_longer_budget_is_recorded(run, refused):
    run.save_status("completed")
    assert "has spent its budget" in refused("training.max_steps=2")
    older = {key: value for key, value in run.config().items() if key != "training.muon_momentum"}
    run.config_path.write_text(yaml.safe_dump(older))  # of a version that did not have this key
    assert resume(run, steps=40) == 0
    assert run.metrics()[-1]["step"] == 40
    assert run.config()["training.max_steps"] == 40
    assert run.config()["training.muon_momentum"] == 0.95
    assert run.events()[-1]["changed"] == {"training.max_steps": [2, 40]}


def test_a_run_that_was_killed_after_its_last_step_is_completed(run):
    """Everything is trained and saved; only the curves and the status are missing."""
    rows, weights = run.metrics(), load_last(run.checkpoints).weights
    run.save_status("in progress")
    run.curves_path.unlink()
    (run.checkpoints / "new.safetensors.99.tmp").touch()
    assert resume(run, steps=2) == 0
    assert not list(run.checkpoints.glob("*.tmp"))
    assert run.curves_path.exists()
    assert run.status()["status"] == "completed"
    assert run.metrics() == rows
    torch.testing.assert_close(load_last(run.checkpoints).weights, weights, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("stopped", "before", "after", "steps"), [(3, 1, 1, [4]), (7, 3, 2, [3, 6, 8])]
)
def test_a_run_beyond_its_budget_gets_its_last_evaluation(
    train, tmp_path, stopped, before, after, steps
):
    folder = tmp_path / "logs" / "mlm" / "stopped"
    run = train(
        stop_after=stopped, folder=folder, training__max_steps=9, training__evaluations=before
    ).run
    run.save_status("interrupted")
    assert (
        main(["--resume", str(run.path), "training.max_steps=2", f"training.evaluations={after}"])
        == 0
    )
    assert [row["step"] for row in run.metrics()] == steps
    assert run.status()["status"] == "completed"


def test_a_bound_is_not_compared_with_a_loss(run):
    """`loss.bound` decides in the new stages."""
    before = load_weights(run.checkpoints / "best.safetensors")
    change_last(run, lambda state: state.update(best_loss=0.0))  # a `loss.valid` below any bound
    stages = "training.stages=[{until: 1.0, seq_len: 8, masking_prob: [0.2, 0.9]}]"
    assert main(["--resume", str(run.path), "training.max_steps=4", stages]) == 0
    after = load_weights(run.checkpoints / "best.safetensors")
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "deleted": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"\xffgarbage\n" * 9),
}


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_last_checkpoint_is_replaced_by_the_previous_one(run, printed, damage):
    assert resume(run) == 0  # now there are two checkpoints
    last = run.checkpoints / "last.safetensors"
    for step in (2, 4):  # of the previous checkpoint; that of step 4 has spent the budget
        DAMAGES[damage](last)
        output = printed(main, "--resume", run.path, "training.max_steps=4")
        assert (
            output.count(
                "warning: the last checkpoint is damaged or missing; resuming from the one before it"
            )
            == 1
        )
        assert f"resuming at step {step}" in output
        assert load_checkpoint(last).state["step"] == run.metrics()[-1]["step"] == 4
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
    for path in run.path.rglob("*"):
        if path.is_file() and path not in (*needed, run.checkpoints / "last.safetensors"):
            damage(path)
    assert resume(run) == 0
    assert run.metrics()[-1]["step"] == 4
    assert load_weights(run.checkpoints / "best.safetensors")


def change_last(run: RunFolder, change: Callable[[dict], object]) -> None:
    """Save the last checkpoint again, with another state."""
    path, weights, state = load_checkpoint(run.checkpoints / "last.safetensors")
    change(state)
    Content.of(weights, state).save(path)


def another_text(run: RunFolder) -> None:
    with open(run.config()["data.corpus"], "a") as file:
        file.write("more")


def of_another_version(run: RunFolder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.checkpoint.FORMAT", 4)
        change_last(run, lambda state: None)


def changed(value: object, *keys: str | int) -> Callable[[dict], None]:
    """Returns a function that changes a value deep in a state."""

    def change(state: dict) -> None:
        *parents, last = keys
        for key in parents:
            state = state[key]
        state[last] = value

    return change


MOMENTS = ("training_step", "optimizers", 0, "state", 0)
CHANGES: list[Callable[[dict], object]] = [
    changed({}, "training_step", "masker"),
    changed(torch.zeros(3), *MOMENTS, "exp_avg"),
    changed("abc", "callbacks", "knobs", "knobs", "learning_rate_factor"),
    changed(7.0, "callbacks", "knobs", "knobs", "masking_prob"),
    changed("abc", "callbacks", "health", "n_near_unigram"),
    changed([1], "callbacks", "run", "environment"),
    changed(-1, "callbacks", "run", "sizes", "metrics.jsonl"),
    changed("abc", "sums", "loss"),
    changed(torch.zeros(3), "sums", "loss"),
    changed(None, "step"),
    changed(1.5, "n_evaluations"),
    changed("abc", "best_loss"),
    changed(float("nan"), "seconds"),
    changed({}, "evaluated_at"),
    lambda state: state.pop("chars"),
]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (another_text, "has changed since the run was trained on it"),
        (lambda run: shutil.rmtree(run.checkpoints), "holds no checkpoint to resume from"),
        (
            lambda run: run.save_config(run.config() | {"model.d_model": 64}),
            "holds the weights of a different model",
        ),
        (
            of_another_version,
            "last.safetensors does not have format 3: resume with the version that trained the run",
        ),
        *((partial(change_last, change=each), "last.safetensors is ") for each in CHANGES),
    ],
)
def test_a_run_that_cannot_be_resumed_is_refused_in_one_line(run, refused, damage, message):
    damage(run)
    assert message in refused()


def test_a_run_that_is_being_trained_is_not_resumed(run, refused):
    with run.locked():
        assert "is being trained by another process right now" in refused()


@pytest.mark.parametrize("is_recorded", [True, False])  # earlier runs do not record the precision
def test_other_threads_and_another_precision_are_warned_about(run, printed, is_recorded: bool):
    torch.set_num_threads(2)
    if not is_recorded:
        change_last(
            run, lambda state: state["callbacks"]["run"]["environment"].pop("training.precision")
        )
    run.save_config(run.config() | {"training.precision": "bfloat16"})
    output = printed(main, "--resume", run.path, "training.max_steps=4")
    (warning,) = [line for line in output.splitlines() if line.startswith("warning: ")]
    assert "threads was 1, is 2" in warning
    assert "training.precision was float32, is bfloat16" in warning
    assert warning.endswith(": the run will not continue bit for bit")


@pytest.mark.parametrize("target", ["archive/0123456789ab", "renamed"])
def test_a_moved_run_is_resumed_in_its_own_folder_every_time(run, tmp_path, target):
    moved = tmp_path / "logs" / target
    moved.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(run.path, moved)
    run.path.mkdir()
    (run.path / "run.pid").write_text("1")  # left there by labml
    (moved / "run.pid").write_text("1")
    for steps in (4, 6):
        assert resume(RunFolder(moved), steps) == 0
        assert RunFolder(moved).metrics()[-1]["step"] == steps
    assert [path.name for path in run.path.iterdir()] == ["run.pid"]
    assert "name: mlm" in (moved / "run.yaml").read_text()


def test_a_state_that_cannot_be_saved_at_the_end_is_reported_in_one_line(run, refusal):
    """A limit on the size of files stands for a full disk: a row can be written, a checkpoint
    cannot."""
    before = {path.name: path.read_bytes() for path in run.checkpoints.iterdir()}
    with limited(resource.RLIMIT_FSIZE, 20_000):
        error = refusal(main, "--resume", run.path, "training.max_steps=4", code=1)
    assert "stopped: cannot save the run (File too large): make room for " in error
    assert {path.name: path.read_bytes() for path in run.checkpoints.iterdir()} == before
    assert run.status()["status"] == "crashed"
    assert resume(run) == 0  # once there is room


@pytest.mark.parametrize("n_characters", [2_551, 5_110])
def test_a_text_with_one_validation_window_is_trained_and_resumed(
    train, tmp_path, sentences, printed, request, n_characters
):
    path = written(tmp_path / "short.txt", sentences[:n_characters])
    trained = train(
        data__corpus=path, training__max_steps=2, folder=tmp_path / "logs" / "mlm" / "short"
    )
    assert trained.configs.data.validation.n_windows == 1
    run = trained.run
    assert run.metrics()[-1]["loss.valid_stderr"] is None
    run.curves_path.unlink(missing_ok=True)
    request.getfixturevalue("draws")
    output = printed(main, "--resume", run.path, "training.max_steps=4")
    assert run.metrics()[-1]["step"] == 4
    assert run.curves_path.read_bytes().startswith(b"\x89PNG")
    assert "loss.valid" in output
    assert "nan" not in output
