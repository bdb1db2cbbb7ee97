import hashlib

import pytest
import torch

from data.corpus import Corpus, CorpusError
from data.protocol import protocol_masks, validation_set


def test_the_masks_never_change():
    """All published losses, and all comparisons between runs, rest on these draws."""
    masked = protocol_masks(435)
    digest = hashlib.sha256(masked.numpy().tobytes()).hexdigest()

    assert digest == "d50f698ca54038c22bfa82bb873376ab2e70b5f28a9101e4044ce0a10164206a"
    # a shorter text has the same masks, fewer of them
    assert torch.equal(protocol_masks(10), masked[:10])
    assert set(protocol_masks(1_024).sum(1).tolist()) == {38}


def test_windows_do_not_overlap_the_remainder_is_dropped_and_a_large_text_has_1024_evenly_spaced():
    windows = validation_set(torch.arange(256 * 4 + 255)).windows
    assert windows.equal(torch.arange(256 * 4).view(4, 256))

    windows = validation_set(torch.arange(256 * 3_000)).windows

    assert windows.shape == (1_024, 256)
    assert windows[0, 0] == 0
    assert windows[-1, -1] == 256 * 3_000 - 1
    assert set(windows[:, 0].diff().tolist()) == {256 * 2, 256 * 3}


def test_the_shortest_corpus_with_a_validation_window_has_2551_characters():
    for length, validation_length in ((2_551, 256), (2_550, 255)):
        assert (
            len(Corpus.from_text("short", "a" * length).validation) == validation_length
        )

    assert validation_set(torch.zeros(256)).n_windows == 1
    with pytest.raises(CorpusError, match="at least 2,551"):
        validation_set(torch.zeros(255))
