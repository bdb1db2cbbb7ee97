import hashlib
import os
import pickle
import subprocess

import pytest
import torch

from runs.run_folder import RunFolder
from tests.conftest import needed
from training.checkpoint import (
    CheckpointError,
    load_last,
    load_state,
    load_weights,
    put_weights,
    save_best,
    save_last,
    save_state,
    save_weights,
)

NAMES = ("last.safetensors", "last.pt", "previous.safetensors", "previous.pt")


def state(step: int) -> dict:
    """A training state as a trainer saves it."""
    return {
        "step": step,
        "chars": 512 * step,
        "seconds": 1.0,
        "wall_seconds": 2.0,
        "n_evaluations": 0,
        "best_loss": float("inf"),
        "warnings": [],
        "interval": {"start": {"step": 0, "chars": 0, "seconds": 0.0}, "sums": [torch.zeros(())]},
        "training_step": {"optimizers": [{"state": {0: {"step": torch.tensor(1.0)}}}]},
        "knobs": {"knobs": {}, "is_changed_by_hand": False},
        "environment": {},
        "sizes": {},
    }


def model(value: float) -> torch.nn.Module:
    linear = torch.nn.Linear(7, 5)
    torch.nn.init.constant_(linear.weight, value)
    return linear


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints: of step 1 with weights of 1, and of step 2 with weights of 2."""
    for step in (1, 2):
        save_last(tmp_path / "checkpoints", model(float(step)).state_dict(), state(step))
    return tmp_path / "checkpoints"


def is_whole(folder, steps: set[int]) -> bool:
    """Whether a checkpoint of one of these steps is found, with matching weights and state."""
    found = load_last(folder)
    assert found.state["step"] in steps
    assert (found.weights["weight"] == float(found.state["step"])).all()
    return True


def test_the_last_checkpoint_is_found_and_the_one_before_is_kept(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert is_whole(folder, {2})
    assert load_state(folder / "previous.pt")["step"] == 1
    assert (load_weights(folder / "previous.safetensors")["weight"] == 1).all()


def test_weights_that_two_modules_share_are_saved(tmp_path):
    """As in a decoder that is tied to the embedding."""

    def tied(seed: int) -> torch.nn.Sequential:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Embedding(7, 3), torch.nn.Linear(3, 7))
        model[1].weight = model[0].weight
        return model

    save_weights(tmp_path / "best.safetensors", tied(0).state_dict())
    other = tied(1)
    put_weights(other, load_weights(tmp_path / "best.safetensors"), tmp_path)
    assert other[1].weight is other[0].weight
    assert torch.equal(other[1].weight, tied(0)[1].weight)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tenth", range(11))
@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_file_is_refused_and_the_other_checkpoint_is_found(folder, name, tenth, damage):
    """With the damage at every tenth of the file's length."""
    path = folder / name
    content = bytearray(path.read_bytes())
    at = min(len(content) - 1, tenth * len(content) // 10)
    if damage == "flip":
        content[at] ^= 0x10
    else:
        del content[at:]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged|cannot read"):
        load_weights(path) if path.suffix == ".safetensors" else load_state(path)
    assert is_whole(folder, {1} if name.startswith("last") else {2})


def test_if_no_checkpoint_is_whole_the_message_names_a_file_that_exists(folder):
    for name in NAMES:
        (folder / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"last\.pt is damaged") as caught:
        load_last(folder)
    assert "\n" not in str(caught.value)
    assert "new" not in str(caught.value)
    with pytest.raises(CheckpointError, match="holds no checkpoint to resume from"):
        load_last(folder / "nowhere")


MISSING = object()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", "abc"),
        ("step", float("nan")),
        ("step", True),
        ("seconds", float("nan")),
        ("best_loss", float("nan")),
        ("warnings", [1]),
        ("interval", {"start": {}, "sums": []}),
        ("sizes", []),
        ("weights", None),
        *((key, MISSING) for key in state(0)),
    ],
)
def test_wrong_content_with_a_correct_hash_is_refused_with_its_key(tmp_path, key, value):
    content = state(1) | {"weights": "0" * 64, key: value}
    save_state(tmp_path / "last.pt", {name: each for name, each in content.items() if each is not MISSING})
    with pytest.raises(CheckpointError, match=rf"last\.pt.* {key} is (missing|wrong)") as caught:
        load_last(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [[], {}, [1, 2], "text", None, {"step": 1}])
def test_other_content_with_a_correct_hash_is_refused_in_one_line(tmp_path, content):
    torch.save(content, tmp_path / "raw")
    raw = (tmp_path / "raw").read_bytes()
    (tmp_path / "last.pt").write_bytes(raw + hashlib.sha256(raw).digest())
    with pytest.raises(CheckpointError, match=r"last\.pt (is damaged|was written by another version)") as caught:
        load_last(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_best_checkpoint_has_its_step_and_loss(tmp_path):
    save_best(tmp_path, model(3.0).state_dict(), {"step": 7, "loss.valid": 1.5})
    assert (load_weights(tmp_path / "best.safetensors")["weight"] == 3).all()
    found = load_state(tmp_path / "best.pt", {"step": int, "loss.valid": float})
    assert (found["step"], found["loss.valid"]) == (7, 1.5)


@pytest.mark.parametrize("n_before", [0, 1, 2])
def test_at_every_moment_of_a_save_one_checkpoint_is_whole(tmp_path, monkeypatch, n_before):
    """The process is stopped before each rename in turn."""

    class Killed(BaseException):
        pass

    moments = 0
    for stop_at in range(20):
        folder = tmp_path / str(stop_at)
        for step in range(1, n_before + 1):
            save_last(folder, model(float(step)).state_dict(), state(step))
        count = 0

        def replace(before, after, real=os.replace, stop_at=stop_at):
            nonlocal count
            if count == stop_at:
                raise Killed
            count += 1
            real(before, after)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                save_last(folder, model(3.0).state_dict(), state(3))
            except Killed:
                moments += 1
            else:
                assert is_whole(folder, {3})
                break
        if n_before or stop_at >= 2:  # a first checkpoint is whole when both of its files are written
            assert is_whole(folder, {n_before, 3})
    assert moments == (6 if n_before else 4)  # two files written, two that become previous if any, two that become last


def test_code_in_a_file_is_not_executed(tmp_path):
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(marker),))

    torch.save({"step": Evil()}, tmp_path / "raw.pt")
    for content in ((tmp_path / "raw.pt").read_bytes(), pickle.dumps(Evil())):
        (tmp_path / "state.pt").write_bytes(content + hashlib.sha256(content).digest())
        with pytest.raises(CheckpointError, match="does not hold a training state"):
            load_state(tmp_path / "state.pt")
    assert not marker.exists()


def test_changed_weights_in_a_valid_file_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(path, model(1.0).state_dict())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="do not match their hash"):
        load_weights(path)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    needed(mounted.returncode == 0 or os.geteuid() != 0, "needs the right to mount a file system")
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk, filler) -> None:
    """Leave no room for another block."""
    filler.write_bytes(b"x" * (os.statvfs(disk).f_bavail * 4096))


def test_a_full_disk_leaves_the_existing_checkpoint(small_disk):
    folder = small_disk / "checkpoints"
    big = torch.nn.Linear(200, 200)  # 160 kB: two checkpoints fit, a third does not
    save_last(folder, big.state_dict(), state(1))
    (small_disk / "filler").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096 - 100_000))
    with pytest.raises(OSError, match="No space left"):
        save_last(folder, big.state_dict(), state(2))
    assert load_last(folder).state["step"] == 1
    assert not list(folder.glob("*.tmp"))
    (small_disk / "filler").unlink()
    save_last(folder, big.state_dict(), state(3))
    assert load_last(folder).state["step"] == 3


def test_a_full_disk_costs_no_rows_and_no_checkpoint_once_there_is_room(small_disk, train, corpus_file):
    """Rows are queued until they can be written, and checkpoints are tried again."""
    filler = small_disk / "filler"

    def fill_up_or_clear(callbacks) -> None:
        if len(callbacks.rows) == 2:
            fill(small_disk, filler)
        if len(callbacks.rows) == 14:  # the last block of the file is full by then
            filler.unlink()

    trained = train(
        folder=small_disk / "run",
        on_row=fill_up_or_clear,
        data__corpus=str(corpus_file),
        training__max_steps=16,
        training__evaluations=16,
        checkpoint__every_seconds=0.001,
        model__d_model=16,
        model__d_ff=16,
    )
    assert [row["step"] for row in trained.run.metrics()] == list(range(1, 17))
    assert any("cannot write a row" in line for line in trained.callbacks.lines)
    assert any("cannot write the checkpoint" in line for line in trained.callbacks.lines)
    assert load_last(trained.run.checkpoints).state["step"] == 16


def test_a_line_is_appended_whole_or_not_at_all(small_disk):
    run = RunFolder(small_disk)
    run.append_event({"event": "noted", "step": 1})
    fill(small_disk, small_disk / "filler")
    with pytest.raises(OSError, match="No space left"):
        run.append_event({"event": "noted", "step": 2, "text": "x" * 10_000})
    assert run.events() == [{"event": "noted", "step": 1}]
