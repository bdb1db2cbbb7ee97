import multiprocessing
from types import SimpleNamespace

import numpy as np
import pytest

from data.corpus import Corpus
from data.play.automaton import Automaton
from data.protocol import N_MASKED, validation_set
from data.references import losses as reference_losses
from data.references import process as reference_process
from data.references.losses import (
    cached_losses,
    mean_losses,
    unigram_loss,
    window_losses,
)
from data.references.process import References
from data.vocabulary import Vocabulary
from runs.run_folder import RunFolder
from tests.conftest import SAVE_CURVES
from training.callbacks.reference_losses import ReferenceLosses

# independent characters
COINS = Automaton("ab", ({0: 0.25, 1: 0.75}, {0: 0.25, 1: 0.75}))
KNOWN = {"uniform": 4.0, "unigram": 3.0}


@pytest.fixture
def coins(empty_cache):
    """A text with a known floor, and an empty cache."""
    return Corpus.from_text("coins", COINS.write(100_000, seed=0), COINS)


def unigram_of(corpus):
    vocabulary = Vocabulary(corpus.counts)
    training = vocabulary.encode(corpus.training).bincount(
        minlength=vocabulary.n_ordinary
    )
    validation = vocabulary.encode(corpus.validation).bincount(
        minlength=vocabulary.n_ordinary
    )
    return unigram_loss(training, validation)


def test_tiny_shakespeares_size_and_its_unigram_and_counting_losses_are_the_published_ones(
    shakespeare,
):
    corpus = Corpus.from_text("tiny_shakespeare", shakespeare)
    vocabulary = Vocabulary(corpus.counts)

    assert vocabulary.n_ordinary == 65
    assert validation_set(vocabulary.encode(corpus.validation)).n_windows == 435
    assert round(unigram_of(corpus), 3) == 3.347
    assert round(mean_losses(window_losses(corpus))["counting"], 3) == 1.179


def test_without_context_to_learn_from_all_references_are_the_entropy(coins):
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert unigram_of(coins) == pytest.approx(entropy, abs=0.03)

    losses = mean_losses(window_losses(coins))

    assert losses["counting"] == pytest.approx(entropy, abs=0.03)
    assert losses["floor"] == pytest.approx(entropy, abs=0.03)


def test_losses_are_computed_once_for_each_text_and_again_if_the_cache_is_damaged(
    coins, monkeypatch, empty_cache
):
    assert cached_losses(coins) is None

    first = window_losses(coins)
    with monkeypatch.context() as patch:
        # would be called to compute them
        patch.setattr(reference_losses, "_count", None)
        again = window_losses(coins)

    assert np.array_equal(again["counting"], first["counting"])
    assert np.array_equal(again["floor"], first["floor"])

    (path,) = (empty_cache / "references").iterdir()
    path.write_bytes(path.read_bytes()[:-8])

    assert cached_losses(coins) is None
    assert np.array_equal(window_losses(coins)["floor"], first["floor"])

    other = Corpus.from_text("other coins", COINS.write(100_000, seed=1), COINS)

    assert not np.array_equal(window_losses(other)["floor"], first["floor"])


def test_a_cache_that_cannot_be_written_does_no_harm(coins, empty_cache):
    (empty_cache / "references").write_text("a file in place of the folder")
    assert np.isfinite(window_losses(coins)["counting"]).all()
    assert cached_losses(coins) is None


@pytest.mark.parametrize("length", [2_551, 5_110])
def test_a_text_with_one_validation_window_has_finite_reference_losses(
    length, empty_cache
):
    short = Corpus.from_text("short", COINS.write(length, seed=0), COINS)
    losses = window_losses(short)
    assert losses["n_masked"].tolist() == [N_MASKED]
    for name in ("counting", "floor"):
        assert losses[name].shape == (1,)
        assert 0 < losses[name][0] < 2 * N_MASKED

    assert unigram_of(short) == pytest.approx(0.56, abs=0.1)


@pytest.fixture
def text(sentences, monkeypatch, empty_cache):
    """A text whose reference losses are computed in a background process."""
    monkeypatch.setattr(reference_process, "SMALL", 0)
    return Corpus.from_text("sentences", sentences)


def test_counting_runs_in_the_background_and_is_cached(text):
    first = References(text, KNOWN)
    assert first.losses == KNOWN  # counting is not awaited
    assert first.is_complete(wait_seconds=60)
    assert first.losses["counting"] < 1.0

    before = multiprocessing.active_children()
    again = References(text, KNOWN)

    assert again.is_complete()  # from the cache
    assert again.losses == first.losses
    assert set(multiprocessing.active_children()) <= set(before)


def test_the_floor_is_computed_until_it_has_been_waited_for(coins, monkeypatch):
    monkeypatch.setattr(reference_process, "SMALL", 0)
    references = References(coins, KNOWN)

    assert references.is_computing_floor()
    assert references.floor() is not None
    assert not references.is_computing_floor()


def test_a_background_process_that_dies_does_not_stop_the_run(text):
    before = set(multiprocessing.active_children())
    started = References(text, KNOWN)
    (child,) = set(multiprocessing.active_children()) - before

    child.kill()

    assert not started.is_complete(wait_seconds=60)
    assert not started.is_complete()
    assert started.losses == KNOWN
    assert started.floor() is None


def test_a_run_says_that_its_counting_was_not_computed(text, tmp_path, monkeypatch):
    monkeypatch.setattr(SAVE_CURVES, lambda *_: None)
    before = set(multiprocessing.active_children())
    callback = ReferenceLosses(RunFolder(tmp_path), References(text, KNOWN))
    (child,) = set(multiprocessing.active_children()) - before
    child.kill()
    reported = []
    trainer = SimpleNamespace(
        report=reported.append,
        progress=lambda: 1.0,
        evaluator=SimpleNamespace(corpus=text),
    )

    callback.begin(trainer)
    callback.end(trainer)

    assert "counting is being computed" in reported[0]
    assert "counting was not computed by the end of the run" in reported[1]
