"""Every strategy on tokens that are not characters, and on a text that stays on the disk."""

import numpy as np
import pytest
import torch

from configs.experiment import configs_of
from configs.segment_masker import segmenter_of
from data.batch import IGNORED_LABEL
from data.corpus import Corpus, CorpusError
from data.masking.scripts import UNSPACED
from data.masking.segmenters import Characters
from data.masking.strategies import STRATEGIES, units_of
from data.masking.token_units import MARGIN, for_stored_text, on_tokens
from data.masking.units import AdaptiveUnits, CorpusUnits, Mixture, Spans
from data.masking.words import WORD
from data.play.grammar import play
from data.tokens.bytes import ByteVocabulary
from data.tokens.choose import vocabulary_of
from data.vocabulary import Vocabulary, characters_of
from tests.conftest import SENTENCES
from tests.data.masking.helpers import Fresh, generator

TEXT = (
    "".join(SENTENCES)
    + "\nKING ÉDOUARD:\nThe cat isn't from Zürich, said King Édouard. 中文 is far.\n\n"
) * 40
CORPUS = Corpus.from_text("test", TEXT)
VOCABULARIES = {
    "bytes": ByteVocabulary(),
    "bpe": vocabulary_of("bpe:320", CORPUS, (), lambda line: None),
}
NO_UNITS = {"random", "span_characters"}  # of more than a token


def masking(vocabulary):
    configs = configs_of({"device": "cpu"})
    data = configs.data
    data.vocabulary = vocabulary
    data.loaded = CORPUS
    data.training_ids = vocabulary.encode(CORPUS.training)
    counts = data.training_ids.bincount(minlength=vocabulary.n_ids_in_text)
    data.counts = counts, torch.zeros_like(counts)
    return configs


def of_words(segmenter, n):
    """The unit and the weight of each of `n` tokens; for spans, those of their words."""
    if isinstance(segmenter, Spans):
        segmenter = segmenter.base

    units, weights = segmenter(torch.arange(n)[None], torch.Generator(), 0.0)
    return units[0], weights[0]


@pytest.mark.parametrize("kind", VOCABULARIES)
@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - NO_UNITS))
def test_units_hold_whole_words(name, kind):
    """All tokens of a word are in one unit with one weight, as the word's characters are."""
    vocabulary = VOCABULARIES[kind]
    configs = masking(vocabulary)
    ids = configs.data.training_ids
    units, weights = of_words(segmenter_of(configs.masking, STRATEGIES[name]), len(ids))
    expected = of_words(STRATEGIES[name](CORPUS.training), len(CORPUS.training))
    _, offsets = vocabulary.text_of(ids, CORPUS.training)
    for match in WORD.finditer(CORPUS.training):
        if UNSPACED.search(match[0]):
            continue
        span = torch.tensor(match.span())
        begin, end = torch.searchsorted(offsets, span).tolist()
        text = vocabulary.decode(ids[begin:end])

        assert text.strip() == match[0]
        assert len(units[begin:end].unique()) == 1

    assert torch.equal(units, expected[0][offsets])
    assert torch.equal(weights, expected[1][offsets])


@pytest.mark.parametrize("name", STRATEGIES)
def test_unknown_characters_are_never_labels_nor_random_tokens(name):
    vocabulary = characters_of(CORPUS.counts, "", 0.01, ())
    configs = masking(vocabulary)
    configs.masking.strategy = name
    configs.masking.random_tokens = "unigram"
    n = len(configs.data.training_ids) // 64
    offsets = torch.arange(n * 64).view(n, 64)
    tokens = configs.data.training_ids[offsets]
    was_unknown = tokens == vocabulary.unknown_token

    assert was_unknown.any()

    batch = configs.masking.strategy(tokens, offsets, 0.9)

    assert (batch.labels != vocabulary.unknown_token).all()
    assert torch.equal(batch.inputs == vocabulary.unknown_token, was_unknown)
    assert (batch.labels != IGNORED_LABEL).sum() > 0.8 * tokens.numel()


@pytest.mark.parametrize("allowed", [False, True])
def test_any_segmenter_gets_the_offsets_of_characters(monkeypatch, allowed):
    monkeypatch.setattr(Fresh, "allows_static_masks", allowed)
    char_of = torch.tensor([0, 2, 2, 5])
    found = on_tokens(Fresh(6), char_of).to(torch.device("cpu"))

    assert found.learns
    assert found.allows_static_masks == allowed

    found.observe(torch.tensor([1, 3]), torch.ones(2))
    units, weights = found(torch.tensor([[0, 1, 2, 3]]), torch.Generator(), 0.0)

    assert units.tolist() == [[0, 2, 2, 5]]
    assert weights.tolist() == [[1, 0.5, 0.5, 0.5]]

    again = on_tokens(Fresh(6), char_of)
    again.load_state_dict(found.state_dict())

    assert torch.equal(again(torch.arange(4)[None], torch.Generator(), 0.0)[1], weights)


def test_segmenters_of_ours_are_kept():
    words = units_of("the cat")
    char_of = torch.tensor([0, 4, 5])

    assert isinstance(on_tokens(Characters(), char_of), Characters)

    adaptive = AdaptiveUnits(words, torch.tensor([0, 1, 2]), torch.ones(3))
    parts = {"a": Spans(words), "b": adaptive}
    mixed = on_tokens(Mixture(parts, [(1.0, {"a": 1})]), char_of)
    mixed.observe(torch.tensor([1, 2]), torch.tensor([3.0, 5.0]))

    assert adaptive.means.tolist() == pytest.approx([1, 1, 1 + 0.05 * 3])

    units, _ = mixed.segmenters["a"].base(torch.arange(3)[None], torch.Generator(), 0.0)
    assert units.tolist() == [[0, 2, 2]]


STORED = (
    play()[:50_000]
    + "\n\nROMEO:\nWhat says my lord Romeo now of love and Romeo?\n" * 20
)
CHARACTERS = Vocabulary(STORED)
STORED_IDS = CHARACTERS.encode(STORED).to(torch.uint8)
WHOLE = np.array([len(STORED)])  # one document
STARTS = torch.randint(
    MARGIN, len(STORED) - 256 - MARGIN, (40, 1), generator=generator()
)
OFFSETS = STARTS + torch.arange(192)


def numbered(units):
    """Units numbered from 0 in each window."""
    return torch.nn.functional.pad((units.diff(dim=1) != 0).cumsum(1), (1, 0))


def draw(segmenter):
    return segmenter(OFFSETS, generator(), 0.0)


@pytest.mark.parametrize(
    "name", ["whole_word", "entity", "frequency", "syntax", "contextual"]
)
def test_windows_are_cut_as_the_whole_text_is(name):
    whole = STRATEGIES[name](STORED)
    assert isinstance(whole, CorpusUnits)

    units, weights = draw(for_stored_text(whole, STORED_IDS, CHARACTERS, WHOLE))
    expected, expected_weights = draw(whole)
    # the window's ends may cut a phrase that is longer than the margin
    inside = slice(8, -8)

    assert torch.equal(numbered(units[:, inside]), numbered(expected[:, inside]))

    if name != "contextual":  # the whole text leaves out the occurrence itself
        assert torch.allclose(weights[:, inside], expected_weights[:, inside])


@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - {"adaptive"}))
def test_every_strategy_works_on_a_text_that_stays_on_the_disk(name):
    segmenter = STRATEGIES[name](STORED[:20_000])
    units, weights = draw(for_stored_text(segmenter, STORED_IDS, CHARACTERS, WHOLE))

    assert units.shape == weights.shape == OFFSETS.shape
    assert weights.isfinite().all()
    assert (weights > 0).any(1).all()


def test_what_needs_the_whole_text_is_refused_with_its_size():
    unit_of = torch.arange(len(STORED), dtype=torch.int32)
    without_rule = CorpusUnits(unit_of, torch.ones(len(STORED)))
    reason = r"needs the whole text in memory, at least .* MB"

    for refused in (STRATEGIES["adaptive"](STORED), without_rule):
        with pytest.raises(CorpusError, match=reason):
            for_stored_text(refused, STORED_IDS, CHARACTERS, WHOLE)


def test_a_window_of_pieces_is_cut_as_each_document_alone():
    """Neighbors in a window may be neighbors in the text, but they are other documents."""
    texts = ["one two", "three four five", "six"]
    text = "".join(texts)
    vocabulary = Vocabulary(text)
    ends = np.cumsum([len(part) for part in texts])
    segmenter = for_stored_text(
        units_of(text), vocabulary.encode(text).to(torch.uint8), vocabulary, ends
    )
    # all documents; parts of words; padding has the offset 0
    windows = torch.tensor(
        [[*range(25)], [*range(22, 25), *range(9, 20), *range(3, 7), *[0] * 7]]
    )

    units, _ = segmenter(windows, generator(), 0.0)

    words = ["one", " ", "two", "three", " ", "four", " ", "five", "six"]
    of_parts = ["six", "ree", " ", "four", " ", "fi", " ", "two", "_" * 7]
    for row, expected in zip(units, (words, of_parts), strict=True):
        _, lengths = row.unique_consecutive(return_counts=True)
        assert lengths.tolist() == [len(word) for word in expected]
