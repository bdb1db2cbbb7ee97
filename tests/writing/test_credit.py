import pytest
import torch

from data.vocabulary import Vocabulary
from tests.data.play.test_floor import MASK, by_enumeration, random_automaton
from tests.model.conftest import model_of
from writing.credit import Targets, credit, influence
from writing.truth import TruePosterior

VOCABULARY = Vocabulary("abc")


def targets(seed):
    """Texts of four characters of a small automaton, with two masks, and exact influences."""
    automaton = random_automaton(seed, n_states=4)
    shown = VOCABULARY.encode(automaton.write(40, seed)).view(10, 4)
    shown[:, 1] = VOCABULARY.mask_token
    shown[::2, 3] = VOCABULARY.mask_token
    positions = torch.ones(10, dtype=torch.int64)
    truth = TruePosterior(automaton, VOCABULARY)
    exact = influence(truth, shown, positions, VOCABULARY.mask_token)
    return automaton, truth, Targets(shown, positions, exact, VOCABULARY.mask_token)


@pytest.mark.parametrize("seed", range(3))
def test_the_influence_of_the_posterior_equals_enumeration(seed):
    automaton, _, given = targets(seed)

    for window, influences in zip(
        given.shown.clamp(max=MASK), given.influence, strict=True
    ):
        whole, _ = by_enumeration(automaton, window, 0.0)
        for place in range(4):
            hidden = window.clone()
            hidden[place] = MASK
            without, _ = by_enumeration(automaton, hidden, 0.0)
            terms = whole[1] * (whole[1].log() - without[1].log())
            expected = terms[whole[1] > 0].sum().item()
            assert influences[place] == pytest.approx(expected, abs=1e-9)


def test_the_truth_gives_all_credit_where_it_is_due():
    _, truth, given = targets(0)
    result = credit(truth, given)

    assert result["overlap"] == pytest.approx(1)
    assert result["wasted"] == pytest.approx(0, abs=1e-2)
    by_distance = result["by_distance"].values()
    assert sum(row["exact"] for row in by_distance) == pytest.approx(1)


def test_credit_for_a_character_that_does_not_matter_is_wasted():
    """The model predicts a character that is far from the mask, and the text is such that only the
    neighbors of the mask matter."""

    def copies_the_last(inputs, positions):
        rows = positions // inputs.shape[1]
        probs = torch.full((len(rows), VOCABULARY.n_tokens), 0.1)
        probs[torch.arange(len(rows)), inputs[rows, 3]] = 10.0
        return probs.log()

    shown = VOCABULARY.encode("abcb").view(1, 4)
    shown[:, 1] = VOCABULARY.mask_token
    matters = torch.tensor([[0.5, 0.0, 0.5, 0.0]], dtype=torch.float64)
    given = Targets(shown, torch.tensor([1]), matters, VOCABULARY.mask_token)
    result = credit(model_of(copies_the_last), given)

    assert result["overlap"] == 0
    assert result["wasted"] == pytest.approx(1)
    assert result["by_distance"][2] == pytest.approx(
        {"exact": 0, "model": 1, "wasted": 1}
    )


def test_a_model_that_sees_nothing_has_no_influence():
    _, _, given = targets(1)
    flat = model_of(lambda _, positions: torch.zeros(len(positions), 5))
    result = credit(flat, given)

    assert result["overlap"] == result["wasted"] == 0
