"""A text gets the same logits and gradients padded, in a batch with longer texts, as alone."""

from itertools import combinations_with_replacement

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from model.ngrams import NGRAMS, NgramEmbedding
from tests.data.masking.helpers import generator
from tests.model.conftest import small_model

N_TOKENS = 20
LENGTHS = [9, 1, 2, 12, 3, 5, 8, 12]
DRAWS = generator()
TEXTS = [torch.randint(N_TOKENS, (n,), generator=DRAWS) for n in LENGTHS]
IDS = pad_sequence(TEXTS, batch_first=True, padding_value=7)
MASK = torch.arange(12) < torch.tensor(LENGTHS)[:, None]


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
    loss = 0.0

    for text, row in zip(TEXTS, logits, strict=True):
        labels = (text * 3 + 1) % N_TOKENS
        loss += F.cross_entropy(row, labels, reduction="sum")

    loss.backward()
    parameters = dict(model.named_parameters())
    return {name: p.grad for name, p in parameters.items() if p.grad is not None}


def test_padding_does_not_change_the_logits_in_bfloat16(model):
    model = model.to(torch.bfloat16)
    padded = model(IDS, attention_mask=MASK).view(*IDS.shape, -1)

    for text, logits in zip(TEXTS, padded, strict=True):
        alone = model(text[None])
        difference = logits[: len(text)] - alone

        assert difference.abs().max() < 0.02 * alone.abs().max()


def test_every_pair_of_lengths_can_share_a_batch(model):
    lengths = range(1, 13)
    alone = {n: model(torch.arange(n)[None]) for n in lengths}

    for shorter, longer in combinations_with_replacement(lengths, 2):
        columns = torch.arange(longer)
        mask = columns < torch.tensor([longer, shorter])[:, None]
        logits = model(columns.repeat(2, 1), attention_mask=mask)

        of_longer, of_shorter = logits.view(2, longer, -1)

        assert torch.allclose(of_longer, alone[longer], rtol=0, atol=1e-5)
        assert torch.allclose(of_shorter[:shorter], alone[shorter], rtol=0, atol=1e-5)


def test_nor_the_gradients(model):
    model = model.double()
    logits = model(IDS, attention_mask=MASK).split(12)
    padded = gradients(model, [row[:n] for row, n in zip(logits, LENGTHS, strict=True)])
    alone = gradients(model, [model(text[None]) for text in TEXTS])

    assert padded.keys() == alone.keys()

    for name, gradient in alone.items():
        of_padded = padded[name]
        if gradient.is_sparse:
            assert of_padded.is_sparse
        assert torch.allclose(of_padded.to_dense(), gradient.to_dense(), atol=1e-12)
