import itertools
import json
import os
import pickle
import resource
from contextlib import ExitStack

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from runs.run_folder import RunFolder
from tests.conftest import limited, one_line
from training import checkpoint
from training.checkpoint import CheckpointError, Content, load_checkpoint, load_last, save_last

NAMES = ("last.safetensors", "previous.safetensors")


def model(value: float) -> torch.nn.Module:
    linear = torch.nn.Linear(7, 5)
    torch.nn.init.constant_(linear.weight, value)
    return linear


def save(folder, step: int) -> None:
    """Save a checkpoint of a step, with weights and a state of that number."""
    content = Content.of(
        model(float(step)).state_dict(), {"step": step, "moment": torch.full((3,), step)}
    )
    save_last(folder, content.save)


@pytest.fixture
def folder(tmp_path):
    """The checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save(tmp_path / "checkpoints", step)
    return tmp_path / "checkpoints"


def check_found(folder, steps: set[int]) -> None:
    """The checkpoint of one of these steps is found, with the weights and the state of that step."""
    found = load_last(folder)
    assert found.state["step"] in steps
    assert (found.weights["weight"] == found.state["step"]).all()
    assert (found.state["moment"] == found.state["step"]).all()


def test_a_state_comes_back_as_it_was_saved(tmp_path):
    numbers = [2**62, -1, 0.1, 1e-300, float("inf"), True, False, None, "ü\n", [], {}]
    state = {
        "numbers": numbers,
        "by_number": {0: {"step": torch.tensor(1.0)}, 1: [torch.empty(0), {"$tensor": "a name"}]},
        "by_name": {"0": {"lr": 0.1}, "state/0": [[]]},
    }
    dtypes = (torch.uint8, torch.int64, torch.bool, torch.float64, torch.bfloat16)
    tensors = [torch.tensor([[0, 1, 2], [1, 0, 1]]).to(dtype).t() for dtype in dtypes]
    content = Content.of(
        {"weight": tensors[0]}, state | {"tensors": tensors, "moved": tensors[1][1]}
    )
    content.save(tmp_path / "file")
    found = load_checkpoint(tmp_path / "file").state
    torch.testing.assert_close(found["tensors"], tensors, rtol=0, atol=0)
    assert found["moved"].equal(tensors[1][1])
    assert found["numbers"] == numbers
    assert [type(each) for each in found["numbers"]] == [type(each) for each in numbers]
    assert found["by_name"] == state["by_name"]
    assert list(found["by_number"]) == [0, 1]
    assert found["by_number"][0]["step"] == 1
    assert found["by_number"][1][0].shape == (0,)
    assert found["by_number"][1][1] == {"$tensor": "a name"}


def test_weights_that_two_modules_share_are_saved(tmp_path):
    """As in a decoder that is tied to the embedding."""

    models = [
        torch.nn.Sequential(torch.nn.Embedding(7, 3), torch.nn.Linear(3, 7)) for _ in range(2)
    ]
    for each in models:
        each[1].weight = each[0].weight
    saved, other = models
    Content.of(saved.state_dict(), {}).save(tmp_path / "best.safetensors")
    checkpoint.put_weights(other.load_state_dict, load_checkpoint(tmp_path / "best.safetensors"))
    assert other[1].weight is other[0].weight
    assert torch.equal(other[1].weight, saved[1].weight)


def test_the_best_weights_are_a_plain_file_with_their_step_and_loss(tmp_path):
    Content.of(model(3.0).state_dict(), {"step": 7, "loss.valid": 1.5}).save(
        tmp_path / "best.safetensors"
    )
    with safe_open(tmp_path / "best.safetensors", "pt") as file:
        assert set(file.keys()) == {"weight", "bias"}
        assert (file.get_tensor("weight") == 3).all()
        found = json.loads(file.metadata()["state"])
    assert (found["step"], found["loss.valid"]) == (7, 1.5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tenth", range(11))
@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_or_missing_file_is_refused_and_the_other_checkpoint_is_found(
    folder, name, tenth, damage
):
    """With the damage at every tenth of the file's length."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    check_found(folder, {2})
    path = folder / name
    content = bytearray(path.read_bytes())
    at = min(len(content) - 1, tenth * len(content) // 10)
    if damage == "flip":
        content[at] ^= 0x10
    else:
        del content[at:]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load_weights(path)
    check_found(folder, {1} if name.startswith("last") else {2})
    path.unlink()
    check_found(folder, {1} if name.startswith("last") else {2})


def test_if_no_checkpoint_is_whole_the_message_names_a_file_that_exists(folder):
    for name in NAMES:
        (folder / name).write_bytes(b"")
    with one_line(CheckpointError, r"last\.safetensors is damaged"):
        load_last(folder)
    with pytest.raises(CheckpointError, match="holds no checkpoint to resume from"):
        load_last(folder / "nowhere")


def test_a_run_of_an_earlier_version_keeps_its_best_weights_but_is_not_resumed(tmp_path):
    """Its files of weights have no state; this is their hash as that version computed it."""
    digest = "9489b22db8a21cd5efe1b043148f656f22c28e3e226575eab3ed9beddbaf0be6"
    for name in ("best.safetensors", "last.safetensors"):
        save_file({"weight": torch.ones(2)}, tmp_path / name, {"sha256": digest})
    assert checkpoint.load_weights(tmp_path / "best.safetensors")["weight"].equal(torch.ones(2))
    with pytest.raises(
        CheckpointError, match=r"last\.safetensors does not have format 3: resume with the version"
    ):
        load_last(tmp_path)


def test_code_in_a_file_is_not_executed(folder):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(folder / "executed"),))

    torch.save({"step": Evil()}, folder / "last.safetensors")
    (folder / "previous.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match=r"last\.safetensors is damaged"):
        load_last(folder)
    assert not (folder / "executed").exists()


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("n_before", "moment"), [(0, 1), *((n, moment) for n in (1, 2) for moment in range(3))]
)
def test_at_every_moment_of_a_save_one_checkpoint_is_whole(tmp_path, monkeypatch, n_before, moment):
    """The process is killed before a rename: of the written file, of `last` if there is one, and of
    `new`."""
    for step in range(1, n_before + 1):
        save(tmp_path, step)
    renames = itertools.count()

    def replace(before, after, real=os.replace):
        if next(renames) == moment:
            raise Killed
        real(before, after)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Killed):
        save(tmp_path, 3)
    check_found(tmp_path, {n_before, 3})
    save(tmp_path, 4)
    before = next(renames)
    save(tmp_path, 5)
    assert next(renames) == before + 4  # there are no further moments
    check_found(tmp_path, {5})


def test_a_file_that_the_disk_has_changed_does_not_become_the_last(folder, monkeypatch):
    def write(path, content: bytes, real=checkpoint.write_atomically) -> None:
        real(path, content[:-1] + bytes([content[-1] ^ 1]))

    before = {name: (folder / name).read_bytes() for name in NAMES}
    monkeypatch.setattr(checkpoint, "write_atomically", write)
    with pytest.raises(OSError, match=r"new\.safetensors is damaged"):
        save(folder, 3)
    assert {name: (folder / name).read_bytes() for name in NAMES} == before
    check_found(folder, {2})


def test_a_full_disk_costs_no_rows_and_no_checkpoint_once_there_is_room(train):
    """Rows are queued until they can be written, and checkpoints are tried again. A limit stands
    for the disk."""

    def fill_up_or_clear(callbacks) -> None:
        if len(callbacks.rows) == 2:
            disk.enter_context(limited(resource.RLIMIT_FSIZE, 1_000))
        if len(callbacks.rows) == 6:
            disk.close()

    keys = {
        "training__max_steps": 8,
        "training__evaluations": 8,
        "checkpoint__every_seconds": 0.001,
    }
    with ExitStack() as disk:
        trained = train(on_row=fill_up_or_clear, **keys)
    assert [row["step"] for row in trained.run.metrics()] == list(range(1, 9))
    assert any("cannot write a row" in line for line in trained.callbacks.lines)
    assert any("cannot write the checkpoint" in line for line in trained.callbacks.lines)
    assert load_last(trained.run.checkpoints).state["step"] == 8


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    run = RunFolder(tmp_path)
    run.append_event({"event": "noted", "step": 1})
    with limited(resource.RLIMIT_FSIZE, 1_000), pytest.raises(OSError, match="No space left"):
        run.append_event({"event": "noted", "step": 2, "text": "x" * 10_000})
    assert run.events() == [{"event": "noted", "step": 1}]
