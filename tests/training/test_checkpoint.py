import json
import os
import pickle
import resource
from contextlib import ExitStack
from itertools import product

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from runs.run_folder import RunFolder
from tests.conftest import limited, one_line
from training import checkpoint
from training.checkpoint import (
    FORMAT,
    NAMES,
    CheckpointError,
    Content,
    digest,
    load_checkpoint,
    load_last,
    put_weights,
    save_last,
)

LAST = "last.safetensors"
PREVIOUS = "previous.safetensors"


def save(folder, step):
    """Save a checkpoint of a step, with weights and a state of that number."""
    weights = {"weight": torch.full((7, 5), float(step))}
    save_last(
        folder,
        Content.of(weights, {"step": step, "moment": torch.full((3,), step)}).save,
    )


@pytest.fixture
def folder(tmp_path):
    """The checkpoints of steps 1 and 2."""
    folder = tmp_path / "checkpoints"
    save(folder, 1)
    save(folder, 2)
    return folder


def last_step(folder):
    """The step of the latest checkpoint, which has the weights and the state of that step."""
    _, weights, state = load_last(folder)
    assert (weights["weight"] == state["step"]).all()
    assert (state["moment"] == state["step"]).all()

    return state["step"]


def test_a_state_comes_back_as_it_was_saved(tmp_path):
    dtypes = (torch.uint8, torch.int64, torch.bool, torch.float64, torch.bfloat16)
    tensors = [torch.tensor([[0, 1, 2], [1, 0, 1]]).to(dtype).t() for dtype in dtypes]
    state = {
        "plain": [
            2**62,
            -1,
            0.1,
            1e-300,
            float("inf"),
            True,
            False,
            None,
            "ü\n",
            [],
            {},
        ],
        "by_name": {"0": {"lr": 0.1}, "state/0": [[]]},
        "by_number": {
            0: {"step": torch.tensor(1.0)},
            1: [torch.empty(0), {"$tensor": "a name"}],
        },
        "tensors": tensors,
        "moved": tensors[1][1],
    }
    Content.of({"weight": tensors[0]}, state).save(tmp_path / "file")
    loaded = load_checkpoint(tmp_path / "file").state

    assert repr(loaded) == repr({**state, "format": FORMAT})

    torch.testing.assert_close(loaded["tensors"], tensors, rtol=0, atol=0)


def test_weights_are_a_plain_file_even_if_two_modules_share_them(tmp_path):
    """As in a decoder that is tied to the embedding."""

    def tied():
        model = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 7))
        model[1].weight = model[0].weight
        return model

    path = tmp_path / "best.safetensors"
    weights = tied().state_dict()
    Content.of(weights, {"step": 7}).save(path)

    with safe_open(path, "pt") as file:
        assert set(file.keys()) == set(weights)
        assert json.loads(file.metadata()["state"])["step"] == 7

    other = tied()
    put_weights(other.load_state_dict, load_checkpoint(path))

    assert other[1].weight is other[0].weight
    assert torch.equal(other[1].weight, weights["1.weight"])


@pytest.mark.parametrize("name", [LAST, PREVIOUS])
@pytest.mark.parametrize("tenth", range(11))
@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_or_missing_file_is_refused_and_the_other_checkpoint_is_found(
    folder, name, tenth, damage
):
    """With the damage at every tenth of the file's length."""
    assert sorted(path.name for path in folder.iterdir()) == [LAST, PREVIOUS]
    assert last_step(folder) == 2

    path = folder / name
    content = bytearray(path.read_bytes())
    position = min(len(content) - 1, tenth * len(content) // 10)

    if damage == "flip":
        content[position] ^= 0x10
    else:
        del content[position:]

    path.write_bytes(content)

    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path)

    expected = 1 if name == LAST else 2
    assert last_step(folder) == expected

    path.unlink()
    assert last_step(folder) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 99_999,
        '{"$tensor": "none"}',
        '{"$tensor": {}}',
        '{"$items": [1]}',
    ],
)
def test_a_state_that_is_not_of_a_checkpoint_is_refused_in_one_line(tmp_path, text):
    """Its hash is right."""
    weights = {"weight": torch.ones(2)}
    metadata = {"state": text, "sha256": digest(weights, text)}
    save_file(weights, tmp_path / LAST, metadata)

    with one_line(CheckpointError, r"last\.safetensors is damaged"):
        load_last(tmp_path)


def test_weights_that_are_nan_are_refused(tmp_path):
    Content.of({"weight": torch.tensor([1.0, float("nan")])}, {}).save(tmp_path / LAST)
    with one_line(CheckpointError, "weight holds NaN"):
        put_weights(dict, load_checkpoint(tmp_path / LAST))


def test_code_in_a_file_is_not_executed_and_the_message_names_a_file_that_exists(
    folder,
):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(folder / "executed"),))

    torch.save({"step": Evil()}, folder / LAST)
    (folder / PREVIOUS).write_bytes(pickle.dumps(Evil()))

    with one_line(CheckpointError, r"last\.safetensors is damaged"):
        load_last(folder)

    assert not (folder / "executed").exists()
    with one_line(CheckpointError, "holds no checkpoint to resume from"):
        load_last(folder / "nowhere")


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("n_before", "moment"),
    [(0, 1), *product((1, 2), range(3))],
)
def test_at_every_moment_of_a_save_one_checkpoint_is_whole(
    tmp_path, monkeypatch, n_before, moment
):
    """The process is killed before a rename: of the written file, of `last` if there is one, and of
    `new`."""
    for step in range(1, n_before + 1):
        save(tmp_path, step)

    renamed = []

    def replace(before, after, real=os.replace):
        if len(renamed) == moment:
            raise Killed

        renamed.append(after.name)
        real(before, after)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(Killed):
            save(tmp_path, 3)

        assert last_step(tmp_path) in (n_before, 3)

        moment = 99
        save(tmp_path, 4)
        renamed.clear()
        save(tmp_path, 5)

    assert renamed == [NAMES[0], PREVIOUS, LAST]  # there are no further moments
    assert last_step(tmp_path) == 5


def test_a_file_that_the_disk_has_changed_does_not_become_the_last(folder, monkeypatch):
    def write(tensors, path, metadata, real=checkpoint.save_file):
        real(tensors, path, metadata)
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    monkeypatch.setattr(checkpoint, "save_file", write)

    with pytest.raises(OSError, match=r"new\.safetensors is damaged"):
        save(folder, 3)

    assert last_step(folder) == 2

    (folder / LAST).unlink()
    assert last_step(folder) == 1


def test_a_full_disk_costs_no_rows_and_no_checkpoint_once_there_is_room(train):
    """Rows are queued until they can be written, and checkpoints are tried again. A limit stands
    for the disk."""

    def fill_up_or_clear(callbacks):
        if len(callbacks.rows) == 2:
            disk.enter_context(limited(resource.RLIMIT_FSIZE, 1_000))
        if len(callbacks.rows) == 6:
            disk.close()

    keys = {"training__max_steps": 8, "training__evaluations": 8}
    with ExitStack() as disk:
        trained = train(
            on_row=fill_up_or_clear, checkpoint__every_seconds=0.001, **keys
        )

    assert [row["step"] for row in trained.run.metrics()] == list(range(1, 9))

    lines = "\n".join(trained.callbacks.lines)
    assert "cannot write a row" in lines
    assert "cannot write the checkpoint" in lines
    assert load_last(trained.run.checkpoints).state["step"] == 8


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    run = RunFolder(tmp_path)
    event = {"event": "noted", "step": 1}
    run.append_event(event)
    with (
        limited(resource.RLIMIT_FSIZE, 1_000),
        pytest.raises(OSError, match="No space left"),
    ):
        run.append_event(event | {"text": "x" * 10_000})

    assert run.events() == [event]
