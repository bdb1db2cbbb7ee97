import hashlib

import pytest
import torch

from data.batch import IGNORED_LABEL
from data.masking import Corruption, Masker, SegmentMasker
from data.masking.segmenters import Characters
from data.masking.strategies import STRATEGIES
from tests.data.masking.helpers import (
    CPU,
    MASK,
    N_CHARS,
    chi_square,
    generator,
    masker_of,
    text,
    units_of,
)

EQUAL = torch.cat([torch.ones(N_CHARS), torch.zeros(3)])


def masker(weights=EQUAL, randomize_prob=0.1, no_change_prob=0.1, seed=0, **settings):
    corruption = Corruption(
        mask_token=MASK,
        random_token_weights=weights,
        randomize_prob=randomize_prob,
        no_change_prob=no_change_prob,
    )
    options = {"seed": seed, "device": CPU, **settings}
    if {"static_text_len", "corrupt_units"} & settings.keys():
        return SegmentMasker(corruption, segmenter=Characters(), **options)
    return Masker(corruption, **options)


def masked(masker, tokens, masking_prob):
    """The masks of windows that are the whole text."""
    return masker(tokens, torch.arange(tokens.numel()).view(tokens.shape), masking_prob)


@pytest.mark.parametrize(
    ("static", "digest"), [(False, "eb58b99a0d69abee"), (True, "64572e3f2ef00e28")]
)
def test_the_masks_of_random_are_the_same_in_every_version(static, digest):
    """Losses of the preset `quick` can be compared across versions only if its masks stay the same."""
    tokens = torch.arange(4_000) * 7 % N_CHARS
    weights = torch.cat([torch.ones(N_CHARS), torch.zeros(2)])
    options = {"static_text_len": len(tokens)} if static else {}
    drawn = masker(weights, seed=7, **options)
    seen = hashlib.sha256()
    for seq_len, masking_prob in ((32, 0.3), (256, 0.15), (2, 0.5)):
        at = torch.arange(8 * seq_len).view(8, seq_len) + 11
        batch = drawn(tokens[at], at, masking_prob)
        for tensor in (*batch[:3], at.flatten()[batch.positions]):
            seen.update(tensor.numpy().tobytes())

    assert seen.hexdigest().startswith(digest)


def test_random_characters_by_frequency():
    counts = torch.cat([torch.arange(N_CHARS).float(), torch.zeros(3)])
    tokens = torch.full((500, 1_000), 7)
    random_only = masker(counts, randomize_prob=1.0, no_change_prob=0.0)

    drawn = masked(random_only, tokens, 1.0).inputs.flatten()
    n_drawn = drawn.bincount(minlength=N_CHARS + 3)

    assert chi_square(n_drawn, counts / counts.sum()) < 4


def test_no_mask_tokens_are_never_selected():
    tokens = text(200, 50, high=4)
    without_2 = masker(no_mask_tokens=[2])

    assert (masked(without_2, tokens, 0.5).labels != 2).all()

    # Some windows have too few other characters; the labels left over are ignored, and the
    # characters unchanged.
    mostly = torch.where(text(200, 50, high=10) < 8, 2, 1)
    batch = masked(without_2, mostly, 0.5)

    assert batch.labels.shape == (200, 25)
    assert set(batch.labels.unique().tolist()) == {1, IGNORED_LABEL}
    n_others = (mostly == 1).sum(1)
    assert (batch.labels == 1).sum() == n_others.clamp(max=25).sum()

    ignored = batch.positions[batch.labels == IGNORED_LABEL]
    assert (batch.inputs.flatten()[ignored] == 2).all()


@pytest.mark.parametrize("strategy", ["random", "whole_word"])
def test_dynamic_masks_change_and_static_masks_stay(strategy):
    text = "some words, and other words. " * 20
    at = torch.arange(512).view(8, 64)

    for n_static, is_same in ((0, False), (len(text), True)):
        masker, ids = masker_of(
            text, STRATEGIES[strategy](text), static_text_len=n_static
        )
        first = masker(ids[at], at, 0.15).inputs
        # the same window in another row of another batch
        alone = masker(ids[at[3:4]], at[3:4], 0.15).inputs

        assert torch.equal(alone[0], first[3]) == is_same


def test_corrupt_units_corrupts_all_of_a_unit_alike():
    text = "abcdefghij" * 100
    masker, ids = masker_of(text, units_of(*[(10, 1.0)] * 100), corrupt_units=True)
    masker.corruption.randomize_prob = 0.0
    masker.corruption.no_change_prob = 0.5
    at = torch.arange(1_000).view(10, 100)

    units = masker(ids[at], at, 0.5).inputs.view(100, 10)
    hidden = (units == masker.corruption.mask_token).sum(1)

    assert set(hidden.tolist()) == {0, 10}


def packed_numbers(lengths, seq_len):
    """The number of each token's document in windows of documents of these lengths."""
    numbers = torch.zeros(len(lengths), seq_len, dtype=torch.int64)
    for row, of_row in zip(numbers, lengths, strict=True):
        of_text = torch.arange(1, len(of_row) + 1)
        of_text = of_text.repeat_interleave(torch.tensor(of_row))
        row[: len(of_text)] = of_text
    return numbers


def test_no_unit_of_packed_windows_crosses_a_border_and_padding_is_never_selected():
    """The documents lie inside one unit of the text, so that only their borders divide it."""
    numbers = packed_numbers([[7, 5, 8], [20], [3, 7]] * 200, 20)
    segmenter = units_of((20, 1.0))
    segmented, _ = masker_of("abcdefghij" * 2, segmenter, corrupt_units=True)
    tokens = text(600, 20, high=10)
    offsets = torch.arange(20).expand(600, 20)

    batch = segmented(tokens, offsets, 0.25, documents=numbers)

    is_label = batch.labels != IGNORED_LABEL
    of_labels = numbers.flatten()[batch.positions]
    assert (of_labels[is_label] > 0).all()
    # 25% of the tokens of each window
    assert is_label.sum(1).tolist() == [5, 5, 2] * 200
    # five masked tokens are in one document, unless it is too short or the last of several
    n_documents = torch.zeros(600, 4).scatter(1, of_labels, 1.0)[:, 1:].sum(1)
    assert n_documents[1::3].eq(1).all()
    assert n_documents[0::3].eq(1).any()
    assert set(of_labels[is_label].tolist()) == {1, 2, 3}


def test_ignored_labels_of_windows_with_padding_teach_nothing():
    corpus = "some more text where" * 2
    numbers = packed_numbers([[20], [3, 7]] * 50, 20)
    learning, ids = masker_of(corpus, STRATEGIES["adaptive"](corpus))
    offsets = torch.randint(20, (100, 1), generator=generator()) + torch.arange(20)

    batch = learning(ids[offsets], offsets, 0.5, documents=numbers)
    is_label = batch.labels != IGNORED_LABEL
    assert not is_label.all()
    before = learning.segmenter.means.clone()
    # nothing is learned from losses equal to the means
    learning.observe(batch, torch.where(is_label, before[0], 0.0))

    assert torch.equal(learning.segmenter.means, before)


def test_one_document_without_padding_is_masked_as_without_a_mask():
    tokens = text(8, 32)
    offsets = torch.arange(32).expand(8, 32)
    plain = masker(corrupt_units=False)(tokens, offsets, 0.15)
    packed = masker(corrupt_units=False)(
        tokens, offsets, 0.15, documents=torch.ones_like(tokens)
    )

    for expected, tensor in zip(plain[:4], packed[:4], strict=True):
        assert torch.equal(tensor, expected)
