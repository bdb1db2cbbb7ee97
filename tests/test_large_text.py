"""Runs on a text that stays on the disk."""

import signal
import time

import pytest

import data.text.stored
from configs.keys import ConfigError
from data import corpus
from data.corpus import CorpusError
from data.play.grammar import play
from data.text.sources import Reading
from data.text.stored import StoredText
from data.windows.prefetch import Prefetched
from runs.files import locked
from tests.conftest import (
    check_resumes,
    check_same_weights,
    configs_for,
    in_files,
    one_line,
    written,
)

STEPS = 10


@pytest.fixture(autouse=True)
def large(monkeypatch):
    monkeypatch.setattr(corpus, "IN_MEMORY", 0)
    monkeypatch.setattr(data.text.stored, "SAMPLE", 20_000)
    monkeypatch.setattr("data.windows.pairs.VALIDATION_PAIRS", 16)
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 4)


@pytest.fixture
def text(tmp_path):
    return in_files(tmp_path / "texts", play(60_000), 30)


def test_a_large_text_trains_as_it_does_in_memory(tmp_path, train, monkeypatch):
    whole = written(tmp_path / "whole.txt", play(60_000))
    on_disk = train(training__max_steps=STEPS, data__corpus=whole)
    monkeypatch.setattr(corpus, "IN_MEMORY", 10**9)
    in_memory = train(training__max_steps=STEPS, data__corpus=whole)
    check_same_weights(on_disk.run, in_memory.run)


def test_waiting_for_a_slow_disk_is_reported(text, train):
    configs = configs_for(text, training__max_steps=4)
    draw = configs.data.training_windows.windows.draw
    configs.data.training_windows.windows.draw = lambda *shape: (
        time.sleep(0.1),
        draw(*shape),
    )[1]
    recorded = train(configs, data__corpus=text).callbacks
    assert all(row["waiting"] > 0.05 for row in recorded.rows)
    waited = [line for line in recorded.lines if "waited for the disk" in line]
    assert len(waited) == len(recorded.rows)


CASES = {
    "documents": {
        "masking__strategy": "span",
        "data__unknown_below": 0.01,
    },
    "shuffled and static": {
        "data__sampling": "shuffled",
        "masking__masks": "static",
        "masking__random_tokens": "unigram",
    },
    "BPE": {
        "data__tokens": "bpe:300",
        "masking__strategy": "span",
        "model__ngrams": 4,
    },
    "bytes and sop": {
        "data__tokens": "bytes",
        "data__windows": "anywhere",
        "objective__sop": True,
        "masking__strategy": "mixture",
        "masking__mixture": [{"until": 1.0, "entity": 1, "contextual": 1}],
    },
}


@pytest.mark.parametrize("more", CASES.values(), ids=CASES)
def test_a_run_on_a_large_text_continues_bit_for_bit(text, train, more):
    check_resumes(train, 7, data__corpus=text, training__max_steps=STEPS, **more)


def test_a_run_whose_windows_a_thread_draws_continues_bit_for_bit(
    text, train, monkeypatch
):
    """As on a GPU: the checkpoint is written while the thread draws the next windows."""

    def with_thread(windows, device, **_):
        return Prefetched(windows, device, in_thread=True)

    monkeypatch.setattr("configs.windows.Prefetched", with_thread)
    check_resumes(train, 7, data__corpus=text, training__max_steps=STEPS)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"masking__strategy": "adaptive"},
            "this masking.strategy needs the whole text",
        ),
        ({"objective__sop": True}, "pairs cross the borders of documents"),
        (
            {"objective__nsp": True, "data__windows": "anywhere"},
            "objective.nsp needs all speeches in memory",
        ),
        (
            {"data__windows": "packed", "data__sampling": "shuffled"},
            "data.windows=packed draws windows at random",
        ),
        ({"data__sampling": "shuffled"}, r"data.sampling=shuffled needs .* GB"),
        ({"masking__masks": "static"}, r"masking.masks=static needs .* GB"),
    ],
)
def test_what_a_large_text_cannot_do_is_refused_in_one_line(
    text, monkeypatch, more, message
):
    monkeypatch.setattr("configs.windows.MEMORY", 10_000)
    with one_line((CorpusError, ConfigError), message):
        _ = configs_for(text, training__chars_per_step=4_096, **more).trainer


def test_ctrl_c_before_training_gives_one_line(text, tmp_path, fork_server):
    folder = StoredText.cache_of(text, Reading(), None, corpus.CACHE)
    with locked(folder / "lock", print):  # another process converts the text
        words = [
            "experiment.py",
            f"data.corpus={text}",
            f"logs={tmp_path / 'logs'}",
            "device=cpu",
        ]
        program = fork_server.start(words)
        lines = iter(program.stdout.readline, "")
        assert any("waiting for another process" in line for line in lines)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
    assert program.stderr.read().splitlines() == [
        "experiment.py: interrupted before training; what was prepared of a large text is kept"
    ]
