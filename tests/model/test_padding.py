"""A text gets the same logits and gradients padded, in a batch with longer texts, as alone."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from model.ngrams import NGRAMS, NgramEmbedding
from tests.model.conftest import small_model

N_TOKENS = 20
LENGTHS = [9, 1, 2, 12, 3, 5, 8, 12]
GENERATOR = torch.Generator().manual_seed(0)
TEXTS = [torch.randint(N_TOKENS, (n,), generator=GENERATOR) for n in LENGTHS]
IDS = pad_sequence(TEXTS, batch_first=True, padding_value=7)
MASK = torch.arange(12) < torch.tensor(LENGTHS)[:, None]
STARTS = [12 * i for i in range(len(TEXTS))]


@pytest.fixture(params=["no n-grams", "n-grams", "sparse n-grams"])
def model(request):
    ngrams = None
    if request.param != "no n-grams":
        ngrams = NgramEmbedding(
            n_tokens=N_TOKENS, d_model=16, ngrams=NGRAMS, n_rows=997, n_parts=2
        )
        ngrams.table.sparse = request.param == "sparse n-grams"

    return small_model(n_tokens=N_TOKENS, ngrams=ngrams)


def gradients(model, logits):
    """The gradients of a loss on the `logits` of each text."""
    model.zero_grad()
    losses = []
    for text, row in zip(TEXTS, logits, strict=True):
        losses.append(F.cross_entropy(row, (text * 3 + 1) % N_TOKENS, reduction="sum"))

    torch.stack(losses).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_padding_does_not_change_the_logits_in_bfloat16(model):
    model = model.to(torch.bfloat16)
    padded = model(IDS, attention_mask=MASK).view(*IDS.shape, -1)
    for text, logits in zip(TEXTS, padded, strict=True):
        alone = model(text[None])
        assert (logits[: len(text)] - alone).abs().max() < 0.02 * alone.abs().max()


def test_every_pair_of_lengths_can_share_a_batch(model):
    alone = {n: model(torch.arange(n)[None]) for n in range(1, 13)}
    for longer, shorter in ((a, b) for a in range(1, 13) for b in range(1, a + 1)):
        ids = torch.arange(longer).repeat(2, 1)
        mask = torch.arange(longer) < torch.tensor([longer, shorter])[:, None]
        logits = model(ids, attention_mask=mask).view(2, longer, -1)

        assert (logits[0] - alone[longer]).abs().max() < 1e-5
        assert (logits[1, :shorter] - alone[shorter]).abs().max() < 1e-5


def test_neither_does_it_with_positions(model):
    """One position per window, in both forms."""
    last = torch.tensor(LENGTHS) - 1 + torch.tensor(STARTS)
    expected = torch.cat(
        [model(text[None], torch.tensor([len(text) - 1])) for text in TEXTS]
    )

    for positions in (last, last[:, None]):
        assert (
            model(IDS, positions, MASK).flatten(0, -2) - expected
        ).abs().max() < 1e-5


def test_nor_the_gradients(model):
    model = model.double()
    logits = model(IDS, attention_mask=MASK).view(*IDS.shape, -1)
    padded = gradients(model, [row[:n] for row, n in zip(logits, LENGTHS, strict=True)])
    alone = gradients(model, [model(text[None]) for text in TEXTS])

    assert padded.keys() == alone.keys()

    for name, gradient in alone.items():
        if gradient.is_sparse:
            assert padded[name].is_sparse
            # The optimizer updates the rows that are listed, so padding must not list any of its
            # own.
            assert (
                padded[name].coalesce().indices().equal(gradient.coalesce().indices())
            )
        assert torch.allclose(padded[name].to_dense(), gradient.to_dense(), atol=1e-12)
