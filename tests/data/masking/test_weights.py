import numpy as np
import pytest

from data.masking.weights import Surprise, TfIdf, collocations, joined


def test_surprise_is_low_for_what_the_neighbors_decide():
    numbers = np.random.default_rng(0).integers(0, 4, 5_000)
    text = "".join(f"qu{'aeio'[i]} " for i in numbers)
    values = Surprise(text)(text).reshape(-1, 4).mean(0)
    assert values[1] < 0.01  # the u after q
    assert values[2] == pytest.approx(np.log(4), abs=0.05)  # one of four vowels


def test_tf_idf_is_high_for_words_of_few_speeches():
    text = "the king\n\nthe queen\n\nthe king"
    assert TfIdf(text)(text) == pytest.approx(
        [np.log(4 / 3) / 2, np.log(4 / 2) / 2, np.log(4 / 3) / 2, np.log(4) / 2, np.log(4 / 3) / 2, np.log(4 / 2) / 2]
    )


def test_a_collocation_may_end_the_text_and_a_text_without_ngrams_has_none():
    assert collocations([]) == collocations(["one"]) == set()
    assert joined(["a", " ", "kith", " ", "kin"], {("kith", "kin")}) == ["a", " ", "kith kin"]
