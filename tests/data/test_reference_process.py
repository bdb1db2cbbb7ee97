import multiprocessing

import pytest

from data import reference_process
from data.corpus import Corpus
from data.reference_process import References

KNOWN = {"uniform": 4.0, "unigram": 3.0}


@pytest.fixture
def text(sentences: str, monkeypatch: pytest.MonkeyPatch, empty_cache) -> Corpus:
    """A text whose reference losses are computed in a background process."""
    monkeypatch.setattr(reference_process, "SMALL", 0)
    return Corpus.from_text("sentences", sentences)


def test_counting_runs_in_the_background_and_is_cached(text: Corpus):
    first = References(text, KNOWN)
    assert first.losses == KNOWN  # counting is not awaited
    assert first.is_complete(wait_seconds=60)
    assert first.losses["counting"] < 1.0
    before = multiprocessing.active_children()
    again = References(text, KNOWN)
    assert again.is_complete()  # from the cache
    assert again.losses == first.losses
    assert set(multiprocessing.active_children()) <= set(before)


def test_a_background_process_that_dies_does_not_stop_the_run(text: Corpus):
    before = set(multiprocessing.active_children())
    started = References(text, KNOWN)
    (child,) = set(multiprocessing.active_children()) - before
    child.kill()
    assert not started.is_complete(wait_seconds=60)
    assert not started.is_complete()
    assert started.losses == KNOWN
    assert started.floor() is None
