import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.references.counting import count
from data.vocabulary import Vocabulary


def ids_of(text):
    vocabulary = Vocabulary(text)
    return vocabulary.encode(text).numpy(), vocabulary.n_ordinary


def test_witten_bell_by_hand():
    """After `a` in `abacab`, the total is 3 and the types are 2: b twice, c once. Without a visible
    neighbor, the frequency remains."""
    training, n_chars = ids_of("abacab")
    windows = np.array([[0, 1], [0, 1]])
    masked = np.array([[False, True], [True, True]])
    result = count(training, windows, masked, n_chars)

    frequency_of_a = (3 + 0.5) / (6 + 0.5 * 3)
    frequency_of_b = (2 + 0.5) / (6 + 0.5 * 3)
    after_a = (2 + 2 * frequency_of_b) / (3 + 2)

    assert np.exp(-result.losses) == pytest.approx(
        [after_a, frequency_of_a, frequency_of_b]
    )
    assert result.correct.tolist() == [True, True, False]


def test_masked_neighbors_and_other_windows_are_not_used():
    training, n_chars = ids_of("the cat sat on the mat. " * 50)
    windows = training[:64].reshape(2, 32)
    masked = np.zeros((2, 32), dtype=bool)
    masked[0, [5, 6, 31]] = True
    masked[1, 0] = True
    before = count(training, windows, masked, n_chars).losses
    other = windows.copy()
    other[0, 6] = 0  # a masked neighbor
    other[1, 1:] = 1  # the other window

    after = count(training, other, masked, n_chars).losses

    # position 5, next to the changed position 6, which is masked
    assert after[0] == before[0]
    assert after[2] == before[2]  # position 31 of window 0, next to window 1


@given(
    seed=st.integers(0, 1_000),
    rate=st.floats(0.05, 1.0),
    n_characters=st.sampled_from([3, 6, 700]),
)
def test_contexts_that_were_never_seen_give_finite_losses(seed, rate, n_characters):
    """For any size of the alphabet."""
    generator = np.random.default_rng(seed)
    training = generator.integers(0, 3, 12)
    windows = generator.integers(0, n_characters, (2, 20))
    masked = generator.random((2, 20)) < rate

    losses = count(training, windows, masked, n_chars=n_characters).losses

    assert losses.shape == (masked.sum(),)
    assert np.isfinite(losses).all()


def test_only_the_own_document_is_a_context_and_special_tokens_are_never_predicted():
    generator = np.random.default_rng(0)
    separator = 4
    training = np.concatenate(
        [np.append(generator.integers(4, size=9), separator) for _ in range(200)]
    )
    windows = training[:400].reshape(2, 200).copy()
    masked = (generator.random((2, 200)) < 0.2) & (windows != separator)
    numbers = np.tile(np.repeat(np.arange(1, 21), 10), (2, 1))
    together = count(training, windows, masked, 4, numbers).losses

    alone = windows.reshape(40, 10)
    apart = count(training, alone, masked.reshape(40, 10), 4).losses

    assert np.array_equal(together, apart)
    assert (np.exp(-together) < 1).all()
