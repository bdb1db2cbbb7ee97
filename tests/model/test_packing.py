"""A document gets the same logits and gradients packed, beside other documents, as alone."""

import pytest
import torch
from torch.nn import functional as F

from model.ngrams import NGRAMS, NgramEmbedding
from tests.model.conftest import built, small_model

N_TOKENS = 30
# of the documents in each window of 40; padding fills the rest
LENGTHS = [[40], [7, 1, 30], [1, 2, 3, 4, 30], [12, 12, 12], [20]]
SIZES = {"model.d_model": 32, "model.n_heads": 4, "model.n_layers": 2}


def packed():
    """Token ids and the number of each token's document, both `[5, 40]`."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(N_TOKENS, (len(LENGTHS), 40), generator=generator)
    numbers = torch.zeros_like(ids)
    for row, lengths in zip(numbers, LENGTHS, strict=True):
        of_text = torch.arange(1, len(lengths) + 1).repeat_interleave(
            torch.tensor(lengths)
        )
        row[: len(of_text)] = of_text
    return ids, numbers


IDS, NUMBERS = packed()


def documents():
    """The cells of each document in the flattened windows."""
    for row, lengths in enumerate(LENGTHS):
        begin = row * 40
        for length in lengths:
            yield slice(begin, begin + length)
            begin += length


def modern(ngrams):
    embedding = None
    if ngrams != "no n-grams":
        embedding = NgramEmbedding(
            n_tokens=N_TOKENS, d_model=16, ngrams=NGRAMS, n_rows=997, n_parts=2
        )
        embedding.table.sparse = ngrams == "sparse n-grams"
    return small_model(n_tokens=N_TOKENS, ngrams=embedding)


@pytest.fixture(params=["no n-grams", "n-grams", "sparse n-grams", "labml_nn"])
def model(request):
    if request.param == "labml_nn":
        return built("labml_nn", SIZES)
    return modern(request.param)


def test_a_packed_document_has_the_logits_that_it_has_alone(model):
    logits = model(IDS, attention_mask=NUMBERS)
    for cells in documents():
        alone = model(IDS.flatten()[cells][None])
        assert (logits[cells] - alone).abs().max() < 1e-5


def test_so_it_has_at_positions_of_both_forms(model):
    everywhere = model(IDS, attention_mask=NUMBERS)
    columns = torch.tensor([0, 6, 7, 8, 19])
    positions = columns + 40 * torch.arange(len(IDS))[:, None]
    for each in (positions, positions.flatten().flip(0)):
        logits = model(IDS, each, NUMBERS)
        assert (logits - everywhere[each]).abs().max() < 1e-5


@pytest.mark.parametrize("ngrams", ["no n-grams", "sparse n-grams"])
def test_in_bfloat16_logits_differ_by_rounding_only(ngrams):
    model = modern(ngrams)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(IDS, attention_mask=NUMBERS)
        for cells in documents():
            alone = model(IDS.flatten()[cells][None])
            difference = (logits[cells] - alone).abs().max()
            assert difference < 1e-2 * alone.abs().max()


def gradients(model, parts):
    """The gradients of a loss on pairs of logits and labels."""
    model.zero_grad()
    losses = [
        F.cross_entropy(logits, labels, reduction="sum") for logits, labels in parts
    ]
    torch.stack(losses).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_nor_do_gradients_differ(model):
    model = model.double()
    labels = IDS.flatten() * 3 % N_TOKENS
    logits = model(IDS, attention_mask=NUMBERS)
    together = gradients(model, [(logits[c], labels[c]) for c in documents()])
    apart = gradients(
        model,
        [(model(IDS.flatten()[c][None]), labels[c]) for c in documents()],
    )
    for name, gradient in apart.items():
        packed_gradient = together[name]
        difference = packed_gradient.to_dense() - gradient.to_dense()
        assert difference.abs().max() < 1e-7
