import multiprocessing
import time

import pytest

from data.corpus import Corpus
from training import background
from training.background import References

AT_ONCE = {"uniform": 4.0, "unigram": 3.0}


@pytest.fixture
def text(sentences: str, monkeypatch: pytest.MonkeyPatch, tmp_path) -> Corpus:
    """A text whose references are computed in a process of their own."""
    monkeypatch.setattr(background, "SMALL", 0)
    monkeypatch.setattr("data.corpus.CACHE", tmp_path)
    monkeypatch.setenv("FOLIO_CACHE", str(tmp_path))
    return Corpus.from_text("sentences", sentences)


def test_counting_comes_from_a_process_beside_the_training_and_is_kept(text: Corpus):
    first = References(text, AT_ONCE)
    assert first.losses == AT_ONCE  # not there yet, and not waited for
    assert first.is_complete(wait_seconds=60)
    assert first.losses["counting"] < 1.0
    began = time.monotonic()
    again = References(text, AT_ONCE)
    assert again.is_complete()  # from the cache, at once
    assert again.losses == first.losses
    assert time.monotonic() - began < 1


def test_a_process_that_dies_is_no_end_of_the_run(text: Corpus):
    before = set(multiprocessing.active_children())
    started = References(text, AT_ONCE)
    (child,) = set(multiprocessing.active_children()) - before
    child.kill()
    assert not started.is_complete(wait_seconds=60)
    assert not started.is_complete()
    assert started.losses == AT_ONCE
    assert started.floor() is None
