"""Runs on a text that stays on the disk."""

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import data.stored
from configs.command_line import resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from data import corpus
from data.corpus import CorpusError
from data.play.grammar import play
from runs.locks import locked
from tests.conftest import TINY, configs_for, resume_in
from tests.fork_server import ForkServer
from tests.training.test_resume import check_same
from training.checkpoint import load_weights

STEPS = 16


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)
    monkeypatch.setattr(data.stored, "SAMPLE", 20_000)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    whole = play(60_000)
    for number in range(30):
        (folder / f"{number:02}.txt").write_text(whole[number * 2_000 : (number + 1) * 2_000])
    return folder


def keys(text: Path, **more: Any) -> dict[str, Any]:
    return {"data.corpus": str(text), "training.max_steps": STEPS, "training.max_seconds": None} | more


def test_a_large_text_trains_as_it_does_in_memory(
    text: Path, tmp_path: Path, train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    on_disk = train(training__max_steps=STEPS, training__max_seconds=None, data__corpus=str(text))
    whole = tmp_path / "whole.txt"
    whole.write_text("".join(path.read_text() for path in sorted(text.iterdir())))
    monkeypatch.setattr(corpus, "IN_MEMORY", 10**9)
    in_memory = train(training__max_steps=STEPS, training__max_seconds=None, data__corpus=str(whole))
    check_same_weights(on_disk.run, in_memory.run)


def check_same_weights(one: Any, other: Any) -> None:
    weights, others = (load_weights(run.checkpoints / "last.safetensors") for run in (one, other))
    assert all(weights[name].equal(others[name]) for name in weights)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"data.within_documents": True},
        {"masking.strategy": "span"},
        {"masking.strategy": "mixture", "masking.mixture": [{"until": 1.0, "entity": 1, "contextual": 1}]},
        {"objective.sop": True, "masking.strategy": "whole_word"},
        {"data.sampling": "shuffled", "masking.masks": "static", "masking.random_tokens": "unigram"},
        {"data.tokens": "bytes", "masking.strategy": "entity"},
        {"data.tokens": "bpe:300", "masking.strategy": "span", "data.within_documents": True},
        {"data.unknown_below": 0.01},
        {"data.tokens": "bytes", "objective.sop": True},
    ],
    ids=[
        "random",
        "documents",
        "span",
        "mixture",
        "sop",
        "shuffled and static",
        "bytes",
        "BPE",
        "rare characters",
        "bytes and sop",
    ],
)
def test_a_run_on_a_large_text_continues_bit_for_bit(text: Path, train: Callable[..., Any], more: dict[str, Any]):
    values = resolve(TINY, keys(text, **more))
    whole = train(configs_of(values))
    begun = configs_of(values)
    interrupted = train(begun, is_stopped=lambda: begun.trainer.step == 7)
    resumed = configs_of(values)
    resume_in(interrupted.run, resumed)
    check_same(whole.run, interrupted.run)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"masking__strategy": "adaptive"}, "masking.strategy=adaptive needs the whole text"),
        ({"objective__nsp": True}, "objective.nsp needs all speeches in memory"),
        ({"data__within_documents": True, "training__stages": [{"until": 1, "seq_len": 4096}]}, "the longest document"),
    ],
)
def test_what_a_large_text_cannot_do_is_refused_in_one_line(text: Path, more: dict[str, Any], message: str):
    more.setdefault("training__chars_per_step", 4_096)
    with pytest.raises((CorpusError, ConfigError), match=message) as raised:
        _ = configs_for(text, **more).trainer
    assert len(str(raised.value).splitlines()) == 1


def test_shuffled_windows_and_static_masks_are_refused_if_they_need_much_memory(
    text: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("configs.large_text.MEMORY", 10_000)
    with pytest.raises(ConfigError, match=r"data.sampling=shuffled needs .* GB"):
        _ = configs_for(text, data__sampling="shuffled").data.windows
    with pytest.raises(ConfigError, match=r"masking.masks=static needs .* GB"):
        _ = configs_for(text, masking__masks="static").data.windows


def test_ctrl_c_before_training_gives_one_line(text: Path, tmp_path: Path, fork_server: ForkServer):
    folder = corpus.CACHE / "texts" / hashlib.sha256(str(text).encode()).hexdigest()[:16]
    with locked(folder / "lock", print):  # another process converts the text
        command = ["experiment.py", f"data.corpus={text}", f"logs={tmp_path / 'logs'}", "device=cpu"]
        program = fork_server.start(command, dict(os.environ))
        lines = iter(program.stdout.readline, "")
        assert any("waiting for another process" in line for line in lines)
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(30) == 130
    assert program.stderr.read().splitlines() == [
        "experiment.py: interrupted before training; what was prepared of a large text is kept"
    ]
