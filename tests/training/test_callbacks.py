import pytest
import torch

from data.vocabulary import Vocabulary
from model import MaskedLanguageModel, ModernEncoder
from runs.knobs import Knobs
from tests.conftest import RecordingCallbacks
from training.callbacks import KnobPanel, sample
from training.schedule import Stage

PROMPTS = ["the cat sat on the mat", "a dog"]
VOCABULARY = Vocabulary("".join(PROMPTS))


def model() -> MaskedLanguageModel:
    torch.manual_seed(0)
    encoder = ModernEncoder(n_tokens=VOCABULARY.n_tokens, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.5)
    return MaskedLanguageModel(encoder).train()


def test_samples_are_drawn_without_dropout_and_leave_the_rng_state():
    net = model()
    before = torch.get_rng_state()
    first, second = (sample(net, PROMPTS, VOCABULARY, 0.3, torch.device("cpu")) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)
    assert net.training


def test_a_sample_has_the_visible_characters_and_a_guess_for_every_masked_one():
    for prompt, guesses in zip(PROMPTS, sample(model(), PROMPTS, VOCABULARY, 0.3, torch.device("cpu")), strict=True):
        assert "".join(guess.truth for guess in guesses) == prompt
        masked = [guess for guess in guesses if guess.guess is not None]
        assert len(masked) == round(0.3 * len(prompt))
        assert all(guess.guess in VOCABULARY.characters for guess in masked)  # never [MASK]
        assert all(guess.is_correct == (guess.guess == guess.truth) for guess in masked)


def test_a_prompt_with_an_unknown_character_is_refused():
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        sample(model(), ["Ω"], VOCABULARY, 0.3, torch.device("cpu"))


RATES = (0.15, 0.3)
CHANGE = {"learning_rate_factor": 0.5, "masking_prob": 0.3}


def apply(panel: KnobPanel, callbacks: RecordingCallbacks, step: int = 7) -> dict | None:
    return panel.apply(callbacks.wanted_knobs(), callbacks.says, lambda: {"step": step, "seconds": 1.0})


def test_a_request_is_applied_once_and_returned_as_an_event():
    panel, callbacks = KnobPanel(RATES), RecordingCallbacks(wanted=CHANGE)
    event = {
        "event": "changed by hand", "step": 7, "seconds": 1.0,
        "before": {"learning_rate_factor": 1.0, "masking_prob": None}, "after": CHANGE,
    }  # fmt: skip
    assert apply(panel, callbacks) == event
    assert panel.knobs == Knobs(0.5, 0.3)
    assert panel.row() == {"changed_by_hand": True, "learning_rate_factor": 0.5}
    assert apply(panel, callbacks) is None  # the same request
    assert callbacks.lines == ["changed by hand at step 7: learning_rate_factor 0.5, masking_prob 0.3"]


@pytest.mark.parametrize("request_", [{"learning_rate_factor": 1e9}, {"masking_prob": 0.2}, {"dropout": 0.1}])
def test_an_invalid_request_is_reported_once_and_changes_nothing(request_):
    panel, callbacks = KnobPanel(RATES), RecordingCallbacks(wanted=request_)
    assert apply(panel, callbacks) is None
    assert apply(panel, callbacks) is None
    assert (panel.knobs, panel.row()) == (Knobs(), {})
    (line,) = callbacks.lines
    assert line.startswith("not changed: ")
    callbacks.wanted = CHANGE  # a valid request is still accepted
    assert apply(panel, callbacks) is not None


def test_without_a_request_or_a_difference_nothing_happens():
    panel, callbacks = KnobPanel(RATES), RecordingCallbacks()
    for callbacks.wanted in (None, {}, {"learning_rate_factor": 1, "masking_prob": "none"}):
        assert apply(panel, callbacks) is None
    assert (panel.row(), callbacks.lines) == ({}, [])


def test_a_masking_rate_set_by_hand_replaces_that_of_the_stage():
    panel, stage = KnobPanel(RATES), Stage(0.5, 32, 0.15)
    assert panel.applied_to(stage) == stage
    apply(panel, RecordingCallbacks(wanted=CHANGE))
    assert panel.applied_to(stage) == Stage(0.5, 32, 0.3)


def test_the_knobs_of_a_resumed_run_are_those_before_the_interruption():
    panel, resumed = KnobPanel(RATES), KnobPanel(RATES)
    apply(panel, RecordingCallbacks(wanted=CHANGE))
    resumed.load_state_dict(panel.state_dict())
    assert (resumed.knobs, resumed.row()) == (panel.knobs, panel.row())
    callbacks = RecordingCallbacks(wanted=CHANGE)
    assert apply(resumed, callbacks) is None  # the dashboard still asks for what already applies
    assert callbacks.lines == []
