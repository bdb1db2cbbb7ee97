import pytest
import torch

from data.vocabulary import Vocabulary
from model import MaskedLanguageModel, ModernEncoder
from training.callbacks import sample

PROMPTS = ["the cat sat on the mat", "a dog"]
VOCABULARY = Vocabulary("".join(PROMPTS))


def model() -> MaskedLanguageModel:
    torch.manual_seed(0)
    encoder = ModernEncoder(n_tokens=VOCABULARY.n_tokens, d_model=16, n_layers=1, n_heads=2, d_ff=16, dropout=0.5)
    return MaskedLanguageModel(encoder).train()


def test_dropout_is_off_and_no_random_numbers_of_training_are_used():
    net = model()
    before = torch.get_rng_state()
    first, second = (sample(net, PROMPTS, VOCABULARY, 0.3, torch.device("cpu")) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)
    assert net.training


def test_what_was_visible_is_shown_and_what_was_hidden_is_guessed():
    for prompt, guesses in zip(PROMPTS, sample(model(), PROMPTS, VOCABULARY, 0.3, torch.device("cpu")), strict=True):
        assert "".join(guess.truth for guess in guesses) == prompt
        hidden = [guess for guess in guesses if guess.guess is not None]
        assert len(hidden) == round(0.3 * len(prompt))
        assert all(guess.guess in VOCABULARY.characters for guess in hidden)  # a character, never [MASK]
        assert all(guess.is_correct == (guess.guess == guess.truth) for guess in hidden)


def test_a_prompt_with_an_unknown_character_is_refused():
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        sample(model(), ["Ω"], VOCABULARY, 0.3, torch.device("cpu"))
