import errno
import threading

import pytest
import torch

from configs.callbacks import callbacks_of
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
from training.callbacks.threads import ThreadChoice, seconds_per_gradient
from training.checkpoint import Content, load_checkpoint, load_last
from training.schedule import Stage

PROMPTS = ["the cat sat on the mat", "a dog"]
VOCABULARY = Vocabulary("".join(PROMPTS))


def test_a_sample_has_the_visible_characters_and_a_guess_for_every_masked_one():
    """It is drawn without dropout, and leaves the RNG state."""
    net = small_model(n_tokens=VOCABULARY.n_tokens, dropout=0.5)
    before = torch.get_rng_state()
    first, second = (sample(net, PROMPTS, VOCABULARY, 0.3) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)
    assert net.training
    for prompt, guesses in zip(PROMPTS, first, strict=True):
        assert "".join(guess.truth for guess in guesses) == prompt
        masked = [guess for guess in guesses if guess.guess is not None]
        assert len(masked) == round(0.3 * len(prompt))
        assert all(guess.guess in VOCABULARY.characters for guess in masked)  # never [MASK]
        assert all(guess.is_correct == (guess.guess == guess.truth) for guess in masked)
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        sample(net, ["Ω"], VOCABULARY, 0.3)


STAGE = Stage(0.5, 32, 0.15)
CHANGE = {"learning_rate_factor": 0.5, "masking_prob": 0.3}


class Steered:
    """A trainer with a user who wants other values of the knobs."""

    def __init__(self, wanted: dict | None = None):
        self.step, self.events = 7, []
        self.recording = Recording(wanted=wanted)
        self.callbacks = [self.recording]

    def position(self) -> dict:
        return {"step": self.step, "seconds": 1.0}

    def report(self, line: str) -> None:
        self.recording.lines.append(line)

    def call(self, hook: str, event: dict) -> None:
        self.events.append((hook, event))


def row_after(panel: KnobPanel) -> dict:
    row = {"masking_prob": 0.15}
    panel.measured(None, row, None)
    return row


def test_a_request_is_applied_once_and_recorded_as_an_event():
    panel, resumed, trainer = KnobPanel(), KnobPanel(), Steered(CHANGE)
    for each in (panel, panel, resumed):  # the dashboard still asks for what already applies
        resumed.load_state_dict(panel.state_dict())
        assert each.adjust(trainer, STAGE, 0.8) == (Stage(0.5, 32, 0.3), 0.4)
        assert each.knobs == Knobs(0.5, 0.3)
        assert row_after(each) == {
            "masking_prob": 0.3,
            "changed_by_hand": True,
            "learning_rate_factor": 0.5,
        }
    event = {
        "event": "changed by hand", "step": 7, "seconds": 1.0,
        "before": {"learning_rate_factor": 1.0, "masking_prob": None}, "after": CHANGE,
    }  # fmt: skip
    assert trainer.events == [("changed", event)]
    assert trainer.recording.lines == [
        "changed by hand at step 7: learning_rate_factor 0.5, masking_prob 0.3"
    ]


@pytest.mark.parametrize(
    "request_", [{"learning_rate_factor": 1e9}, {"masking_prob": 2}, {"dropout": 0.1}]
)
def test_an_invalid_request_is_reported_once_and_changes_nothing(request_):
    panel, trainer = KnobPanel(), Steered(request_)
    for _ in range(2):
        assert panel.adjust(trainer, STAGE, 0.8) == (STAGE, 0.8)
    assert row_after(panel) == {"masking_prob": 0.15}
    (line,) = trainer.recording.lines
    assert line.startswith("not changed: ")
    trainer.recording.wanted = CHANGE  # a valid request is still accepted
    assert panel.adjust(trainer, STAGE, 0.8) == (Stage(0.5, 32, 0.3), 0.4)


def test_without_a_request_or_a_difference_nothing_happens():
    panel, trainer = KnobPanel(), Steered()
    for trainer.recording.wanted in (None, {}, {"learning_rate_factor": 1, "masking_prob": "none"}):
        assert panel.adjust(trainer, STAGE, 0.8) == (STAGE, 0.8)
    assert (row_after(panel), trainer.events, trainer.recording.lines) == (
        {"masking_prob": 0.15},
        [],
        [],
    )


def test_rows_wait_for_room_and_are_written_once_in_order(tmp_path, monkeypatch):
    room, append = [0], RunFolder.append_metrics

    def append_while_there_is_room(run: RunFolder, row: dict) -> None:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        append(run, row)

    monkeypatch.setattr(RunFolder, "append_metrics", append_while_there_is_room)
    run, trainer = RunFolder(tmp_path), Steered()
    recorder = Recorder(run, {})
    rows = [metrics_row(step) for step in (1, 2, 3, 4)]
    for row in rows[:3]:
        recorder.evaluated(trainer, row, None)
    assert (
        trainer.recording.lines
        == ["cannot write a row; it stays queued (No space left on device)"] * 3
    )
    room[0] = 2
    with pytest.raises(OSError, match="No space"):
        recorder.state_dict()
    assert run.metrics() == rows[:2]
    room[0] = 9
    recorder.evaluated(trainer, rows[3], None)
    recorder.state_dict()
    assert run.metrics() == rows


def test_best_weights_that_could_not_be_written_are_written_with_the_next_checkpoint_as_they_were(
    tmp_path,
):
    recorder, trainer, weight = Recorder(RunFolder(tmp_path), {}), Steered(), torch.zeros(2)
    recorder.run.checkpoints.write_text("in the way")
    recorder.evaluated(trainer, {"step": 3, "loss.valid": 1.5}, {"weight": weight})
    assert "cannot write the best weights" in trainer.recording.lines[0]
    weight += 1  # the training goes on
    recorder.run.checkpoints.unlink()
    recorder.state_dict()
    best = load_checkpoint(recorder.run.checkpoints / "best.safetensors")
    assert torch.equal(best.weights["weight"], torch.zeros(2))
    assert best.state["step"] == 3


def test_a_thread_writes_the_weights_as_they_were_and_the_last_checkpoint_waits_for_it(
    tmp_path, monkeypatch
):
    """A failure is reported once, by the next save; the last one raises it."""
    gate, weight, trainer = threading.Event(), torch.zeros(2), Steered()
    save = Content.save
    monkeypatch.setattr(Content, "save", lambda *args: gate.wait(60) and save(*args))
    recorder = Recorder(RunFolder(tmp_path), {}, in_background=True)
    recorder.evaluated(trainer, {"step": 3, "loss.valid": 1.5}, {"weight": weight})
    weight += 1  # the training goes on
    assert not recorder.best_path.exists()
    gate.set()
    recorder.save(trainer, {"weight": weight}, {"callbacks": {}}, is_last=True)
    assert torch.equal(load_checkpoint(recorder.best_path).weights["weight"], torch.zeros(2))
    assert torch.equal(load_last(recorder.run.checkpoints).weights["weight"], torch.ones(2))
    assert trainer.recording.lines == []
    monkeypatch.setattr(
        "training.callbacks.recorder.save_last", lambda *args: recorder.run.path.mkdir()
    )
    recorder.save(trainer, {"weight": weight}, {"callbacks": {}}, is_last=False)
    with pytest.raises(OSError, match="File exists"):
        recorder.save(trainer, {"weight": weight}, {"callbacks": {}}, is_last=True)
    assert trainer.recording.lines == ["cannot write the checkpoint; will try again (File exists)"]


def test_measuring_the_threads_trains_nothing_and_draws_nothing(corpus_file, two_threads):
    configs = configs_for(corpus_file, model__ngrams=2)
    before, state = weights(configs), str(configs.step.state_dict())
    seconds = seconds_per_gradient(configs.step, configs.training.all_stages[0], (2, 1))
    assert min(seconds.values()) > 0
    assert torch.equal(weights(configs), before)
    assert str(configs.step.state_dict()) == state
    assert all(parameter.grad is None for parameter in configs.network.parameters())


def test_a_clearly_faster_number_of_threads_is_taken(corpus_file, two_threads, monkeypatch):
    trainer, lines = configs_for(corpus_file, training__max_seconds=9.0).trainer, Recording()
    trainer.callbacks = [lines]
    choice = ThreadChoice()
    for seconds, expected in (
        ({1: 0.95, 2: 1.0}, 2),
        ({1: 0.5, 2: 1.0}, 1),
        ({1: 1.0, 2: 0.95}, 1),
    ):
        monkeypatch.setattr(threads, "seconds_per_gradient", lambda *_, found=seconds: found)
        choice.begin(trainer)
        assert torch.get_num_threads() == expected
    assert lines.lines == ["1 thread is faster now than 2 (training.threads=N fixes the number)"]


def test_only_runs_limited_by_seconds_choose_their_threads(corpus_file, two_threads):
    def chooses(**keys) -> bool:
        configs = configs_for(corpus_file, **keys)
        assert configs.step  # building it sets the number of threads
        return any(isinstance(callback, ThreadChoice) for callback in callbacks_of(configs))

    assert chooses(training__max_seconds=9.0)
    assert not chooses(training__max_seconds=9.0, training__max_steps=9)
    assert not chooses(training__max_seconds=9.0, training__threads=1)
    assert torch.get_num_threads() == 1
