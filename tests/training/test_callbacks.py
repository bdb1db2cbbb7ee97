import errno
import threading
from types import NoneType, SimpleNamespace

import pytest
import torch

from configs.acceleration import thread_callback
from data.vocabulary import Vocabulary
from runs.knobs import Knobs
from runs.run_folder import RunFolder
from tests.conftest import Recording, configs_for, weights
from tests.model.conftest import small_model
from tests.runs.conftest import metrics_row
from training.callbacks import threads
from training.callbacks.knobs import KnobPanel
from training.callbacks.recorder import Recorder
from training.callbacks.samples import sample
from training.callbacks.threads import (
    ThreadAdvice,
    ThreadChoice,
    seconds_by_threads,
    seconds_per_gradient,
)
from training.checkpoint import Content, load_checkpoint, load_last
from training.schedule import Stage

PROMPTS = ["the cat sat on the mat", "a dog"]
VOCABULARY = Vocabulary("".join(PROMPTS))


def test_a_sample_has_the_visible_characters_and_a_guess_for_every_masked_one():
    """It is drawn without dropout, and leaves the RNG state. A lower rate masks a part of the same
    characters."""
    model = small_model(n_tokens=VOCABULARY.n_tokens, dropout=0.5)
    before = torch.get_rng_state()
    samples = sample(model, PROMPTS, VOCABULARY, 0.3)

    assert samples == sample(model, PROMPTS, VOCABULARY, 0.3)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training

    fewer = sample(model, PROMPTS, VOCABULARY, 0.15)

    for prompt, guesses, others in zip(PROMPTS, samples, fewer, strict=True):
        assert "".join(guess.truth for guess in guesses) == prompt

        masked = {i for i, guess in enumerate(guesses) if guess.guess is not None}
        assert len(masked) == round(0.3 * len(prompt))
        assert masked > {i for i, guess in enumerate(others) if guess.guess is not None}

        for guess in (guesses[i] for i in masked):
            assert guess.guess in VOCABULARY.characters  # never [MASK]
            assert guess.is_correct == (guess.guess == guess.truth)

    with pytest.raises(ValueError, match="is not in the vocabulary"):
        sample(model, ["Ω"], VOCABULARY, 0.3)


STAGE = Stage(0.5, 32, 0.15)
CHANGE = {"learning_rate_factor": 0.5, "masking_prob": 0.3}


@pytest.fixture
def user():
    """Wants other values of the knobs, and keeps what is reported."""
    return Recording()


@pytest.fixture
def events():
    """The events that the user is told of."""
    return []


@pytest.fixture
def trainer(user, events):
    user.changed = lambda trainer, event: events.append(event)
    return SimpleNamespace(
        step=7,
        callbacks=[user],
        position=lambda: {"step": 7, "seconds": 1.0},
        report=user.lines.append,
    )


def row_after(panel):
    row = {"masking_prob": 0.15}
    panel.measured(None, row, None)
    return row


def test_a_request_is_applied_once_and_recorded_as_an_event(trainer, user, events):
    user.wanted = CHANGE
    panel = KnobPanel(user.wanted_knobs)
    resumed = KnobPanel(user.wanted_knobs)

    # the dashboard still asks for what already applies
    for each in (panel, panel, resumed):
        resumed.load_state_dict(panel.state_dict())
        assert each.adjust(trainer, STAGE, 0.8) == (Stage(0.5, 32, 0.3), 0.4)
        assert each.knobs == Knobs(0.5, 0.3)
        assert row_after(each) == {**CHANGE, "changed_by_hand": True}

    event = {
        "event": "changed by hand",
        **trainer.position(),
        "before": {"learning_rate_factor": 1.0, "masking_prob": None},
        "after": CHANGE,
    }

    assert events == [event]

    (line,) = user.lines
    assert line.startswith("changed by hand at step 7: ")


@pytest.mark.parametrize(
    ("wanted", "is_wrong"),
    [
        (None, False),
        ({}, False),
        ({"learning_rate_factor": 1, "masking_prob": "none"}, False),
        ({"learning_rate_factor": 1e9}, True),
        ({"masking_prob": 2}, True),
        ({"dropout": 0.1}, True),
    ],
)
def test_a_request_without_a_valid_difference_changes_nothing(
    trainer, user, events, wanted, is_wrong
):
    """A wrong one is reported once."""
    user.wanted = wanted
    panel = KnobPanel(user.wanted_knobs)

    for _ in range(2):
        assert panel.adjust(trainer, STAGE, 0.8) == (STAGE, 0.8)

    assert row_after(panel) == {"masking_prob": 0.15}
    assert events == []
    assert [line[:13] for line in user.lines] == ["not changed: "] * is_wrong

    user.wanted = CHANGE  # a valid request is still accepted
    assert panel.adjust(trainer, STAGE, 0.8) == (Stage(0.5, 32, 0.3), 0.4)


@pytest.fixture
def recorder(tmp_path):
    return Recorder(RunFolder(tmp_path), {})


def test_rows_wait_for_room_and_are_written_once_in_order(
    recorder, trainer, user, monkeypatch
):
    written = []

    def append_while_there_is_room(_, row):
        if len(written) == room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(row)

    monkeypatch.setattr(RunFolder, "append_metrics", append_while_there_is_room)
    rows = [metrics_row(step) for step in (1, 2, 3, 4)]
    room = 0

    for row in rows[:3]:
        recorder.evaluated(trainer, row, None)

    assert (
        user.lines
        == ["cannot write a row; it stays queued (No space left on device)"] * 3
    )

    room = 2

    with pytest.raises(OSError, match="No space"):
        recorder.state_dict()

    assert written == rows[:2]

    room = 9
    recorder.evaluated(trainer, rows[3], None)

    assert written == rows


ROW = {"step": 3, "loss.valid": 1.5}


def test_best_weights_that_could_not_be_written_are_written_with_the_next_checkpoint_as_they_were(
    recorder, trainer, user
):
    weight = torch.zeros(2)
    recorder.run.checkpoints.write_text("in the way")
    recorder.evaluated(trainer, ROW, {"weight": weight})

    assert "cannot write the best weights" in user.lines[0]

    weight += 1  # the training goes on
    recorder.run.checkpoints.unlink()
    recorder.state_dict()
    best = load_checkpoint(recorder.best_path)

    assert torch.equal(best.weights["weight"], torch.zeros(2))
    assert best.state["step"] == 3


def test_a_thread_writes_the_weights_as_they_were_and_the_last_checkpoint_waits_for_it(
    tmp_path, trainer, user, monkeypatch
):
    """A failure is reported once, by the next save; the last one raises it."""
    recorder = Recorder(RunFolder(tmp_path), {}, in_background=True)
    gate = threading.Event()
    weights = {"weight": torch.zeros(2)}

    def save(is_last):
        recorder.save(trainer, weights, {"callbacks": {}}, is_last)

    with monkeypatch.context() as patch:
        write = Content.save
        patch.setattr(
            Content, "save", lambda *arguments: gate.wait(60) and write(*arguments)
        )
        recorder.evaluated(trainer, ROW, weights)
        weights["weight"] += 1  # the training goes on

        assert not recorder.best_path.exists()

        gate.set()
        save(is_last=True)

    assert torch.equal(
        load_checkpoint(recorder.best_path).weights["weight"], torch.zeros(2)
    )
    assert torch.equal(
        load_last(recorder.run.checkpoints).weights["weight"], torch.ones(2)
    )
    assert user.lines == []

    monkeypatch.setattr(
        "training.callbacks.recorder.save_last", lambda *_: tmp_path.mkdir()
    )
    save(is_last=False)

    with pytest.raises(OSError, match="File exists"):
        save(is_last=True)

    assert user.lines == ["cannot write the checkpoint; will try again (File exists)"]


def test_measuring_the_threads_trains_nothing_and_draws_nothing(
    corpus_file, two_threads
):
    configs = configs_for(corpus_file, model__ngrams=2)
    before = weights(configs)
    state = str(configs.step.state_dict())
    seconds = seconds_per_gradient(configs.step, configs.training.all_stages[0], (2, 1))

    assert min(seconds.values()) > 0
    assert torch.equal(weights(configs), before)
    assert str(configs.step.state_dict()) == state
    assert all(parameter.grad is None for parameter in configs.network.parameters())


@pytest.mark.parametrize(("enough_seconds", "n_calls"), [(1e9, 12), (1e-9, 4)])
def test_slow_calls_are_timed_in_fewer_turns(
    two_threads, monkeypatch, enough_seconds, n_calls
):
    monkeypatch.setattr(threads, "ENOUGH_SECONDS", enough_seconds)
    calls = []
    seconds_by_threads(lambda: calls.append(torch.get_num_threads()), (2, 1))

    assert calls == [2, 1] * (n_calls // 2)


def test_a_clearly_faster_number_of_threads_is_taken(
    corpus_file, two_threads, monkeypatch
):
    trainer = configs_for(corpus_file, training__max_seconds=9.0).trainer
    recording = Recording()
    trainer.callbacks = [recording]
    choice = ThreadChoice()

    seconds = {}
    monkeypatch.setattr(threads, "seconds_per_gradient", lambda *_: seconds)

    for seconds[1], seconds[2], expected in (
        (0.95, 1.0, 2),
        (0.5, 1.0, 1),
        (1.0, 0.95, 1),
    ):
        choice.begin(trainer)
        assert torch.get_num_threads() == expected

    (line,) = recording.lines

    assert line.startswith("1 thread is faster now than 2")


def test_a_run_that_keeps_its_threads_says_if_one_would_be_much_faster(
    corpus_file, two_threads, monkeypatch
):
    trainer = configs_for(corpus_file, training__max_steps=9).trainer
    recording = Recording()
    trainer.callbacks = [recording]
    seconds = {}
    monkeypatch.setattr(threads, "seconds_per_gradient", lambda *_: seconds)
    for seconds[1], seconds[2] in ((0.8, 1.0), (0.2, 1.0)):
        ThreadAdvice().begin(trainer)
        assert torch.get_num_threads() == 2

    (line,) = recording.lines
    assert "2 threads takes 5.0 times as long as with one" in line


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({}, ThreadChoice),
        ({"training__max_steps": 9}, ThreadAdvice),
        ({"training__threads": 2}, NoneType),
    ],
)
def test_only_runs_limited_by_seconds_choose_their_threads(
    corpus_file, two_threads, keys, kind
):
    configs = configs_for(corpus_file, training__max_seconds=9.0, **keys)
    assert configs.step  # building it sets the number of threads

    assert type(thread_callback(configs)) is kind
    assert torch.get_num_threads() == 2
