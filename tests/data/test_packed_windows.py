"""Packed windows: every token is drawn equally often, and no window mixes documents."""

import pytest
import torch

from data.windows.packed import PackedWindows
from data.windows.prefetch import Prefetched

SEQ_LEN = 16
PADDING = 999
GENERATOR = torch.Generator().manual_seed(0)
# with empty documents, and some that are many windows long
LENGTHS = torch.cat(
    [
        torch.randint(0, 2 * SEQ_LEN, (300,), generator=GENERATOR),
        torch.tensor([SEQ_LEN, SEQ_LEN + 1, 1_000, 0, 200, 1]),
    ]
)
ENDS = LENGTHS.cumsum(0)
IDS = torch.randint(200, (int(ENDS[-1]),), generator=GENERATOR)


def windows_of(seed=1, **settings):
    return PackedWindows(IDS, ENDS, padding_token=PADDING, seed=seed, **settings)


def pieces_of(batch):
    """The offsets of each piece."""
    for offsets, numbers in zip(batch.offsets, batch.attention_mask, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            yield offsets[numbers == number]


@pytest.mark.parametrize("shape", [(4, SEQ_LEN), (1, 5), (3, 64), (50, 2)])
def test_a_window_has_pieces_of_documents_and_then_padding(shape):
    windows = windows_of()
    for _ in range(20):
        batch = windows.draw(*shape)
        numbers = batch.attention_mask
        is_text = numbers > 0

        assert batch.tokens.shape == batch.offsets.shape == numbers.shape == shape
        assert torch.equal(batch.tokens[is_text], IDS[batch.offsets[is_text]])
        assert (batch.tokens[~is_text] == PADDING).all()
        assert (is_text.sum(1) == is_text.long().cumprod(1).sum(1)).all()  # at the end

        for piece in pieces_of(batch):
            begin, end = int(piece[0]), int(piece[-1]) + 1
            assert piece.tolist() == list(range(begin, end))
            document = int(torch.searchsorted(ENDS, begin, right=True))
            first = int(ENDS[document] - LENGTHS[document])
            assert end <= ENDS[document]
            # a document is cut only if it is longer than a window
            is_whole = (begin, end) == (first, int(ENDS[document]))
            assert is_whole or LENGTHS[document] > shape[1]


def chi_square(counts):
    """Standardized: about normal for many counts of equal expectation."""
    mean = counts.mean()
    freedom = len(counts) - 1
    statistic = ((counts - mean) ** 2 / mean).sum()
    return ((statistic - freedom) / (2 * freedom) ** 0.5).item()


def test_every_token_is_drawn_equally_often():
    """Counted over 200,000 pieces. Pieces cover neighbors together, so that only tokens of different
    pieces are compared: those at equal places of all documents, SEQ_LEN apart."""
    counts = torch.zeros(len(IDS))
    windows = windows_of()
    n_pieces = 0
    while n_pieces < 200_000:
        batch = windows.draw(512, SEQ_LEN)
        is_text = batch.attention_mask > 0
        counts += batch.offsets[is_text].bincount(minlength=len(IDS))
        n_pieces += int(batch.attention_mask.amax(1).sum())

    assert counts.min() > 0

    document = torch.searchsorted(ENDS, torch.arange(len(IDS)), right=True)
    place = torch.arange(len(IDS)) - (ENDS - LENGTHS)[document]
    for column in range(SEQ_LEN):
        assert abs(chi_square(counts[place % SEQ_LEN == column])) < 4


def test_folders_have_their_shares():
    folders = torch.tensor([100, len(ENDS)])
    shares = torch.tensor([1.0, 3.0])
    windows = windows_of(folders=folders, shares=shares)
    begins, lengths = windows.pieces(20_000, SEQ_LEN)

    assert (begins < ENDS[99]).float().mean() == pytest.approx(0.25, abs=0.015)
    assert lengths.min() >= 1


def test_little_padding_is_needed_and_pieces_wait_for_room():
    windows = windows_of()
    batches = [windows.draw(16, 64) for _ in range(50)]
    n_padding = sum(int((batch.attention_mask == 0).sum()) for batch in batches)
    assert n_padding < 0.02 * 50 * 16 * 64


SHAPES = [(4, 32), (4, 32), (2, 64), (4, 32), (4, 32)] * 4


@pytest.mark.parametrize("in_thread", [False, True])
def test_the_same_seed_or_state_gives_the_same_windows(in_thread):
    def wrapped(seed):
        return Prefetched(windows_of(seed), IDS.device, in_thread=in_thread)

    plain = windows_of(1)
    drawn = wrapped(1)
    for shape in SHAPES:
        again = wrapped(99)
        again.draw(1, 8)
        again.load_state_dict(drawn.state_dict())
        expected = plain.draw(*shape)
        for batch in (drawn.draw(*shape), again.draw(*shape)):
            assert batch.tokens.equal(expected.tokens)
            assert batch.offsets.equal(expected.offsets)
            assert batch.attention_mask.equal(expected.attention_mask)
