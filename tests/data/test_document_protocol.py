import pytest
import torch

from data import protocol
from data.bound_masks import bound_masks
from data.corpus import CorpusError
from data.document_protocol import validation_set_of_documents
from data.vocabulary import MASK, PAD, SEP, UNK, Vocabulary
from tests.model.conftest import small_model
from trained import measures
from training.evaluation import evaluate

LETTERS = "abcdefghijklmnopqrstuvwxyz "
VOCABULARY = Vocabulary(LETTERS, [PAD, MASK, UNK, SEP])
SEPARATOR = VOCABULARY.id_of(SEP)


def documents(*lengths):
    """Ids of random documents, each with its `[SEP]`, and their ends."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for length in lengths:
        letters = torch.randint(len(LETTERS), (length - 1,), generator=generator)
        parts += [letters, torch.tensor([SEPARATOR])]
    return torch.cat(parts), torch.tensor(lengths).cumsum(0)


def validation(ids, ends):
    return validation_set_of_documents(
        ids,
        ends,
        n_ordinary=VOCABULARY.n_ordinary,
        padding_token=VOCABULARY.padding_token,
    )


def pieces_in(windows):
    """The pieces of documents in each window."""
    pieces = []
    for row, numbers in zip(windows.windows, windows.attention_mask, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            pieces.append(row[numbers == number].tolist())
    return pieces


def test_documents_are_cut_from_their_beginning_and_all_pieces_are_in_the_windows():
    lengths = [3, 300, 256, 40, 600, 2]
    ids, ends = documents(*lengths)
    expected = []
    for document in ids.split(lengths):
        expected += [piece.tolist() for piece in document.split(256)]

    windows = validation(ids, ends)

    assert sorted(pieces_in(windows)) == sorted(expected)
    # the window with the least room takes a piece: no more windows than needed
    assert windows.n_windows == 5
    is_padding = windows.attention_mask == 0
    assert torch.equal(windows.windows == VOCABULARY.padding_token, is_padding)


def test_a_share_of_the_ordinary_tokens_of_each_window_is_masked():
    ids, ends = documents(*[20] * 200)
    ids[5::20] = VOCABULARY.unknown_token

    windows = validation(ids, ends)

    ordinary = windows.windows < VOCABULARY.n_ordinary
    assert torch.equal(windows.maskable, ordinary)
    assert not (windows.masked & ~ordinary).any()
    for n, n_masked in zip(ordinary.sum(1), windows.masked.sum(1), strict=True):
        assert n_masked == round(0.15 * n.item())
    assert torch.equal(windows.masked, validation(ids, ends).masked)


def test_of_many_documents_evenly_spaced_windows_are_kept(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_WINDOWS", 8)
    ids, ends = documents(*[150, 30, 7] * 400)

    windows = validation(ids, ends)

    assert windows.n_windows == 8
    known = {tuple(document.tolist()) for document in ids.split([150, 30, 7] * 400)}
    pieces = [tuple(piece) for piece in pieces_in(windows)]
    assert known.issuperset(pieces)
    assert {len(piece) for piece in pieces} == {150, 30, 7}


def test_documents_without_ordinary_tokens_are_refused():
    ids = torch.full((20,), SEPARATOR)
    with pytest.raises(CorpusError, match=r"\[UNK\]"):
        validation(ids, torch.arange(1, 21))


def test_other_masks_leave_special_tokens_visible():
    windows = validation(*documents(*[31] * 40, 500))
    masks = [measures.sweep_masks(windows, rate) for rate in measures.RATES.values()]
    masks += bound_masks(windows, rounds=2)
    masks.append(measures.word_masks(windows, VOCABULARY))

    for masked in masks:
        assert masked.any()
        assert not (masked & ~windows.maskable).any()

    shares = masks[2].sum(1) / windows.maskable.sum(1)
    assert shares == pytest.approx(torch.full_like(shares, 0.3), abs=0.01)


def test_masked_words_and_spans_lie_in_one_document():
    ids, ends = documents(*[23] * 60)
    windows = validation(ids, ends)
    words = measures.word_masks(windows, VOCABULARY)
    spans = measures.span_masks(windows)
    space = VOCABULARY.id_of(" ")

    assert not words[windows.windows == space].any()
    for masked in (words, spans):
        for row, numbers in zip(masked, windows.attention_mask, strict=True):
            begins = row & ~row.roll(1)
            for begin in begins.nonzero().flatten().tolist():
                length = 0
                while begin + length < 256 and row[begin + length]:
                    length += 1
                assert numbers[begin : begin + length].unique().numel() == 1


def test_the_nearest_visible_token_is_in_the_same_document():
    masked = torch.tensor([[1, 0, 1, 1, 1, 0]]).bool()
    numbers = torch.tensor([[1, 1, 2, 2, 3, 3]])
    distances = measures.distance_to_visible(masked, numbers)

    assert distances[0, [0, 1, 4, 5]].tolist() == [1, 0, 1, 0]
    assert (distances[0, 2:4] > 6).all()


@torch.no_grad()
@pytest.mark.parametrize("seq_len", [256, 64])
def test_the_loss_is_that_of_each_document_alone(seq_len):
    model = small_model(n_tokens=VOCABULARY.n_tokens).eval()
    windows = validation(*documents(3, 300, 40, 25, 256, 90, 60))
    mask_token = VOCABULARY.mask_token
    losses = []
    for row in range(windows.n_windows):
        numbers = windows.attention_mask[row]
        for number in range(1, int(numbers.max()) + 1):
            piece = (numbers == number).nonzero().flatten()
            ids = windows.windows[row, piece]
            hidden = windows.masked[row, piece]
            logits = model(ids.masked_fill(hidden, mask_token)[None])
            losses.append(-logits.log_softmax(-1)[hidden, ids[hidden]])
    expected = torch.cat(losses).mean().item()

    result = evaluate(model, windows, mask_token, seq_len)

    assert result.loss == pytest.approx(expected, abs=1e-5)
    assert (result.loss_at_seq_len == result.loss) == (seq_len == 256)
