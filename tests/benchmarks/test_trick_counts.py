import torch

from benchmarks import trick_counts
from benchmarks.trick_counts import CONTEXTS, CountingPrior, OriginalsKept, WithCounts
from configs.experiment import configs_of
from data.masking import Masker

TEXT = torch.randint(3, (400,), generator=torch.Generator().manual_seed(1))
N_CHARS, N_TOKENS, MASK, SEQ_LEN = 3, 5, 4, 12
OFFSETS = torch.tensor([0, 388, 100, 237])[:, None] + torch.arange(SEQ_LEN)  # the first and the last window, and others
ORIGINALS = TEXT[OFFSETS]


def by_a_plain_loop(inputs: torch.Tensor, position: int, context: tuple[int, ...], left_out: bool) -> list[int]:
    """The characters in this context anywhere in the text, without the position's own occurrence if `left_out`."""
    row, column = divmod(position, SEQ_LEN)
    counts = [0] * N_CHARS
    if not all(0 <= column + offset < SEQ_LEN for offset in context):
        return counts
    shown = [int(inputs[row, column + offset]) for offset in context]
    for i in range(len(TEXT)):
        if left_out and i == OFFSETS[row, column]:
            continue
        is_inside = all(0 <= i + offset < len(TEXT) for offset in context)
        if is_inside and [int(TEXT[i + offset]) for offset in context] == shown:
            counts[TEXT[i]] += 1
    return counts


def masked() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with masked, random and unchanged characters, and the positions of these."""
    generator = torch.Generator().manual_seed(2)
    positions = torch.rand(ORIGINALS.numel(), generator=generator).argsort()[:16].sort().values
    shown = torch.where(torch.rand(16, generator=generator) < 0.6, MASK, torch.randint(3, (16,), generator=generator))
    return ORIGINALS.flatten().index_put((positions,), shown).view_as(ORIGINALS), positions


def test_counts_are_those_of_a_plain_loop():
    """In training the own occurrence is left out, and in evaluation there is none."""
    prior, (inputs, positions) = CountingPrior(TEXT, n_chars=N_CHARS, n_tokens=N_TOKENS), masked()
    for left_out, originals in ((True, ORIGINALS), (False, None)):
        counts = prior.counts(inputs, positions, originals)
        for row, position in zip(counts, positions.tolist(), strict=True):
            expected = [by_a_plain_loop(inputs, position, context, left_out) for context in CONTEXTS]
            assert row.tolist() == expected


def test_a_context_that_is_not_in_the_text_contributes_nothing():
    prior = CountingPrior(TEXT, n_chars=N_CHARS, n_tokens=N_TOKENS)
    logits = prior(torch.full((1, SEQ_LEN), MASK), torch.tensor([3]))
    assert torch.allclose(logits, torch.tensor([[*prior.frequencies.log(), 0, 0]]))


def test_the_masker_hands_over_the_originals_and_the_model_takes_them_off():
    configs = configs_of({"masking.strategy": "leave_one_out", "data.corpus": "play"})
    configs.device = "cpu"
    masker, n_tokens = configs.masking.strategy, configs.data.vocabulary.n_tokens
    assert isinstance(masker, OriginalsKept)
    assert isinstance(masker.masker, Masker)
    windows = configs.data.windows.draw(4, 32)
    state = masker.state_dict()
    batch = masker(windows.tokens, windows.offsets, 0.4)
    masker.load_state_dict(state)
    plain = masker.masker(windows.tokens, windows.offsets, 0.4)
    assert torch.equal(batch.inputs % n_tokens, plain.inputs)
    assert torch.equal(batch.inputs // n_tokens - 1, windows.tokens)
    assert torch.equal(batch.labels, plain.labels)


def test_a_model_with_counts_uses_originals_in_training_only(monkeypatch):
    monkeypatch.setattr(trick_counts, "TINY_SHAKESPEARE", "play")
    configs = configs_of({"model.architecture": "counting_prior", "model.d_model": 32, "data.corpus": "play"})
    configs.device = "cpu"
    model, n_tokens = configs.model.architecture, configs.data.vocabulary.n_tokens
    assert isinstance(model, WithCounts)
    originals = configs.data.training_ids[None, 500:532]
    inputs, positions = originals.clone(), torch.tensor([12])
    inputs[0, 12] = configs.data.vocabulary.mask_token
    coded = inputs + n_tokens * (1 + originals)
    network, prior = super(WithCounts, model).forward(inputs, positions), model.prior
    assert torch.allclose(model.train()(coded, positions), network + prior(inputs, positions, originals))
    assert torch.allclose(model(inputs, positions), network + prior(inputs, positions))
    assert torch.allclose(model.eval()(inputs, positions), network + prior(inputs, positions))
    assert not torch.allclose(prior(inputs, positions), prior(inputs, positions, originals))
