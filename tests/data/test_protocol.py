import hashlib

import pytest
import torch

from data.corpus import CorpusError, split_at
from data.protocol import protocol_masks, unigram_loss, validation_set, validation_windows
from data.vocabulary import Vocabulary


def test_the_masks_never_change():
    """Every figure in the README, and every run ever compared, rests on these draws."""
    masked = protocol_masks(435)
    assert (
        hashlib.sha256(masked.numpy().tobytes()).hexdigest()
        == "d50f698ca54038c22bfa82bb873376ab2e70b5f28a9101e4044ce0a10164206a"
    )
    assert torch.equal(protocol_masks(10), masked[:10])  # a shorter text has the same masks, fewer of them


def test_every_window_has_38_masks():
    assert set(protocol_masks(1_024).sum(1).tolist()) == {38}


def test_windows_are_the_last_tenth_without_overlap():
    ids = torch.arange(10 * 256 * 4)
    windows = validation_windows(ids)
    assert windows.shape == (4, 256)
    assert torch.equal(windows.flatten(), ids[split_at(len(ids)) :][: 4 * 256])


def test_a_large_text_has_1024_windows_evenly_spaced():
    ids = torch.arange(10 * 256 * 3_000)
    windows = validation_windows(ids)
    assert windows.shape == (1_024, 256)
    assert windows[0, 0] == split_at(len(ids))
    assert windows[-1, -1] == len(ids) - 1
    assert set(windows[:, 0].diff().tolist()) == {256 * 2, 256 * 3}


def test_the_shortest_text_that_will_do():
    assert len(validation_windows(torch.zeros(2_551))) == 1
    with pytest.raises(CorpusError, match="at least 2,551"):
        validation_windows(torch.zeros(2_550))


def test_tiny_shakespeare_has_435_windows_and_the_designs_unigram_loss(shakespeare: str):
    vocabulary = Vocabulary(shakespeare)
    ids = vocabulary.encode(shakespeare)
    assert validation_set(ids).n_windows == 435
    assert round(unigram_loss(ids, vocabulary.n_chars), 3) == 3.347
