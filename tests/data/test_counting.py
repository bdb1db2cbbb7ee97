import random

import numpy as np
import pytest

from data.corpus import Corpus
from data.counting import MAX_CHARACTERS_IN_CONTEXT, count
from data.vocabulary import Vocabulary


def ids_of(text: str) -> tuple[np.ndarray, int]:
    vocabulary = Vocabulary(text)
    return vocabulary.encode(text).numpy(), vocabulary.n_chars


def test_witten_bell_by_hand():
    """After `a` in `abacab`, with one neighbour visible: total 3, types 2 (b twice, c once)."""
    training, n_chars = ids_of("abacab")
    window, masked = np.array([[0, 1]]), np.array([[False, True]])
    result = count(training, window, masked, n_chars)
    unigram = (2 + 0.5) / (6 + 0.5 * 3)
    assert np.exp(-result.losses[0]) == pytest.approx((2 + 2 * unigram) / (3 + 2))
    assert result.correct.tolist() == [True]


def test_an_unseen_context_falls_back_to_the_smaller_one():
    training, n_chars = ids_of("abababcc")
    alone = count(training, np.array([[0]]), np.array([[True]]), n_chars)
    assert np.exp(-alone.losses[0]) == pytest.approx((3 + 0.5) / (8 + 0.5 * 3))  # nothing visible: frequency
    # c is followed by c once; never by anything known behind a hidden character.
    beside_hidden = count(training, np.array([[0, 0, 1]]), np.array([[True, True, False]]), n_chars)
    assert np.isfinite(beside_hidden.losses).all()


def test_hidden_neighbours_and_other_windows_are_not_used():
    training, n_chars = ids_of("the cat sat on the mat. " * 50)
    windows = training[:64].reshape(2, 32)
    masked = np.zeros((2, 32), dtype=bool)
    masked[0, [5, 6, 31]] = masked[1, 0] = True
    before = count(training, windows, masked, n_chars).losses
    other = windows.copy()
    other[0, 6], other[1, 1:] = 0, 1  # a hidden neighbour, and the other window
    after = count(training, other, masked, n_chars).losses
    assert after[0] == before[0]  # place 5, beside the changed place 6, which is hidden
    assert after[2] == before[2]  # place 31 of window 0, beside window 1


@pytest.mark.parametrize("n_characters", [3, MAX_CHARACTERS_IN_CONTEXT + 200])
def test_any_size_of_alphabet(n_characters: int):
    generator = np.random.default_rng(0)
    training = generator.integers(0, n_characters, 5_000)
    masked = generator.random((10, 50)) < 0.3
    result = count(training, training[:500].reshape(10, 50), masked, n_characters)
    assert np.isfinite(result.losses).all()
    assert len(result.losses) == masked.sum()


def sketch_masks(length: int, rate: float) -> np.ndarray:
    """The draw behind the design's figures: every character alone, from Python's generator with seed 0."""
    generator = random.Random(0)
    return np.array([generator.random() < rate for _ in range(length)])


@pytest.mark.parametrize(("rate", "loss"), [(0.15, 1.197), (0.20, 1.327), (0.30, 1.639), (0.40, 1.942), (0.50, 2.219)])
def test_it_reproduces_the_designs_figures_on_tiny_shakespeare(shakespeare: str, rate: float, loss: float):
    corpus, vocabulary = Corpus.from_text("tiny_shakespeare", shakespeare), Vocabulary(shakespeare)
    training, valid = vocabulary.encode(corpus.training).numpy(), vocabulary.encode(corpus.validation).numpy()
    result = count(training, valid[None], sketch_masks(len(valid), rate)[None], vocabulary.n_chars)
    assert result.losses.mean() == pytest.approx(loss, abs=0.04)
    if rate == 0.15:
        assert result.correct.mean() == pytest.approx(0.679, abs=0.01)
