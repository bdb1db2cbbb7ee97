import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.masking import IGNORED_LABEL, Corruption, Masker, n_masked_in
from data.masking.segmenters import Characters, CorpusUnits, Spans, first_columns, sampling_order
from data.masking.strategies import STRATEGIES
from data.vocabulary import Vocabulary

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masker_of(text: str, cut, **settings) -> tuple[Masker, torch.Tensor]:
    vocabulary = Vocabulary(text)
    weights = torch.zeros(vocabulary.n_tokens)
    weights[: vocabulary.n_chars] = 1
    corruption = Corruption(mask_token=vocabulary.mask_token, random_token_weights=weights)
    return Masker(corruption, device=CPU, cut=cut, **{"seed": 0, **settings}), vocabulary.encode(text)


def units_of(*lengths_and_weights: tuple[int, float]) -> CorpusUnits:
    lengths, weights = zip(*lengths_and_weights, strict=True)
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).int()
    return CorpusUnits(ids, torch.tensor(weights))


def test_the_first_column_of_a_unit():
    units = torch.tensor([[4, 4, 7, 8, 8, 8], [1, 2, 2, 2, 1, 1]])
    assert first_columns(units).tolist() == [[0, 0, 2, 3, 3, 3], [0, 1, 1, 1, 4, 4]]


def test_units_are_taken_whole_and_the_last_one_is_cut():
    cut = units_of((3, 1.0), (4, 1.0), (2, 1.0), (5, 1.0))
    offsets = torch.arange(14).expand(500, 14)
    units, weights = cut(offsets, generator())
    order, _ = sampling_order(units, weights, torch.rand(500, 14, generator=generator()))
    for row in order[:, :8]:  # a budget of 8 characters
        taken = cut.unit_of[row].tolist()
        *whole, last = dict.fromkeys(taken)
        for unit in whole:
            assert taken.count(unit) == int((cut.unit_of == unit).sum())
        first = int((cut.unit_of == last).nonzero()[0])
        assert row[-taken.count(last) :].tolist() == list(range(first, first + taken.count(last)))


def test_the_first_unit_is_drawn_in_proportion_to_its_weight():
    """Chi-squared over 40,000 draws, with 3 degrees of freedom: 16.3 is exceeded once in a thousand times."""
    weights = [1.0, 2.0, 4.0, 0.5]
    cut = units_of((3, weights[0]), (1, weights[1]), (6, weights[2]), (2, weights[3]))
    offsets = torch.arange(12).expand(40_000, 12)
    order, _ = sampling_order(*cut(offsets, generator()), torch.rand(40_000, 12, generator=generator(1)))
    observed = torch.bincount(cut.unit_of[order[:, 0]].long(), minlength=4).double()
    expected = torch.tensor(weights).double() / sum(weights) * 40_000
    assert ((observed - expected) ** 2 / expected).sum() < 16.3


def test_a_unit_without_weight_is_never_taken():
    cut = units_of((4, 0.0), (4, 1.0))
    offsets = torch.arange(8).expand(100, 8)
    order, times = sampling_order(*cut(offsets, generator()), torch.rand(100, 8, generator=generator()))
    assert (order[:, :4] >= 4).all()
    assert times[:, 4:].isinf().all()


def test_span_lengths_follow_the_renormalised_geometric_distribution():
    lengths = Spans(Characters()).lengths((400_000,), generator())
    chances = 0.2 * 0.8 ** torch.arange(10, dtype=torch.float64)
    chances /= chances.sum()
    observed = torch.bincount(lengths, minlength=11)[1:].double()
    assert ((observed - 400_000 * chances) ** 2 / (400_000 * chances)).sum() < 27.9  # chi-squared, 9 degrees, 0.001
    assert (torch.arange(1, 11) * chances).sum() == pytest.approx(3.80, abs=0.005)
    assert lengths.double().mean() == pytest.approx(3.80, abs=0.02)


def test_spans_are_runs_of_whole_base_units():
    words = units_of(*[(n, 1.0) for n in (3, 5, 2, 7, 1, 4) * 10])
    offsets = torch.arange(len(words.unit_of)).expand(50, -1)
    spans, _ = Spans(words)(offsets, generator())
    assert (spans.diff(dim=1) >= 0).all()
    cut_inside = (spans[:, 1:] != spans[:, :-1]) & (words.unit_of[1:] == words.unit_of[:-1])
    assert not cut_inside.any()
    interior = torch.cat([torch.unique_consecutive(row, return_counts=True)[1][1:-1] for row in spans])
    assert interior.max() > 7  # spans of several words


def test_spans_are_anywhere_in_the_window():
    spans, _ = Spans(Characters())(torch.arange(64).expand(20_000, 64), generator())
    begins = (spans[:, 1:] != spans[:, :-1]).double().mean(0)
    assert begins[20:].mean() == pytest.approx(1 / 3.797, rel=0.02)
    assert begins[0] == pytest.approx(1 / 3.797, rel=0.05)  # the first columns are like all others


TEXT = "ROMEO:\nBut soft, what light through yonder window breaks?\n\nJULIET:\nAy me! the light, good Romeo.\n\n" * 12


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_spends_exactly_the_budget_at_any_border(name: str):
    masker, ids = masker_of(TEXT, STRATEGIES[name](TEXT))
    for seq_len in (2, 17, 64, 256):
        offsets = torch.randint(len(ids) - seq_len, (40, 1), generator=generator(1)) + torch.arange(seq_len)
        batch = masker(ids[offsets], offsets, 0.2)
        rows = torch.bincount(batch.positions // seq_len, minlength=40)
        assert rows.tolist() == [n_masked_in(seq_len, 0.2)] * 40
        assert (batch.labels != IGNORED_LABEL).all()
        assert torch.equal(batch.labels, ids[batch.offsets])


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_seed_gives_the_same_masks(name: str):
    offsets = torch.randint(len(TEXT) - 64, (8, 1), generator=generator(2)) + torch.arange(64)
    first, second = (masker_of(TEXT, STRATEGIES[name](TEXT), seed=3) for _ in range(2))
    inputs = [masker(ids[offsets], offsets, 0.15).inputs for masker, ids in (first, second)]
    assert torch.equal(*inputs)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80),
    name=st.sampled_from(list(STRATEGIES)),
    masking_prob=st.floats(0.001, 1.0),
    seed=st.integers(0, 2**31),
)
def test_any_text_any_window_any_budget(text, name, masking_prob, seed):
    masker, ids = masker_of(text, STRATEGIES[name](text), seed=seed)
    offsets = torch.arange(len(ids)).expand(2, -1)
    batch = masker(ids[offsets], offsets, masking_prob)
    assert batch.labels.shape == (2 * n_masked_in(len(ids), masking_prob),)
    assert batch.positions.unique().numel() == batch.positions.numel()
    selected = batch.labels != IGNORED_LABEL
    assert torch.equal(batch.labels[selected], ids[batch.offsets[selected]])


def test_a_unit_is_corrupted_as_one():
    text = "abcdefghij" * 100
    cut = units_of(*[(10, 1.0)] * 100)
    masker, ids = masker_of(text, cut, corrupt_units=True)
    masker.corruption.randomize_prob = 0.0
    masker.corruption.no_change_prob = 0.5
    offsets = torch.arange(1_000).view(10, 100)
    batch = masker(ids[offsets], offsets, 0.5)
    units = batch.inputs.view(100, 10)
    mask_token = masker.corruption.mask_token
    hidden = (units == mask_token).sum(1)
    assert set(hidden.tolist()) == {0, 10}


def test_static_masks_of_a_strategy_stay():
    masker, ids = masker_of(TEXT, STRATEGIES["whole_word"](TEXT), static=True, corpus_len=len(TEXT))
    offsets = torch.arange(128).expand(3, -1)
    first, second = (masker(ids[offsets], offsets, 0.15) for _ in range(2))
    assert torch.equal(first.inputs, second.inputs)
