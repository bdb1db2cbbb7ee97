import pytest
import torch

from data.corpus import CorpusError
from data.masking.segmenters import CorpusUnits, Segmenter
from data.masking.strategies import STRATEGIES
from data.masking.token_units import MARGIN, for_stored_text
from data.play.grammar import play
from data.vocabulary import Vocabulary

TEXT = play()[:50_000] + "\n\nROMEO:\nWhat says my lord Romeo now of love and Romeo?\n" * 20
VOCABULARY = Vocabulary(TEXT)
IDS = VOCABULARY.encode(TEXT).to(torch.uint8)
GENERATOR = torch.Generator().manual_seed(0)
OFFSETS = torch.randint(MARGIN, len(TEXT) - 256 - MARGIN, (40, 1), generator=GENERATOR) + torch.arange(192)


def numbered(units: torch.Tensor) -> torch.Tensor:
    """Units numbered from 0 in each window."""
    return torch.nn.functional.pad((units.diff(dim=1) != 0).cumsum(1), (1, 0))


def draw(segmenter: Segmenter) -> tuple[torch.Tensor, torch.Tensor]:
    return segmenter(OFFSETS, torch.Generator().manual_seed(0), 0.0)


@pytest.mark.parametrize("name", ["whole_word", "entity", "frequency", "syntax", "contextual"])
def test_windows_are_cut_as_the_whole_text_is(name: str):
    whole = STRATEGIES[name](TEXT)
    assert isinstance(whole, CorpusUnits)
    (units, weights), (expected, expected_weights) = draw(for_stored_text(whole, IDS, VOCABULARY)), draw(whole)
    inside = slice(8, -8)  # the window's ends may cut a phrase that is longer than the margin
    assert torch.equal(numbered(units[:, inside]), numbered(expected[:, inside]))
    if name != "contextual":  # the whole text leaves out the occurrence itself
        assert torch.allclose(weights[:, inside], expected_weights[:, inside])


@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - {"adaptive"}))
def test_every_strategy_works_on_a_text_that_stays_on_the_disk(name: str):
    units, weights = draw(for_stored_text(STRATEGIES[name](TEXT[:20_000]), IDS, VOCABULARY))
    assert units.shape == weights.shape == OFFSETS.shape
    assert weights.isfinite().all()
    assert (weights > 0).any(1).all()


def test_what_needs_the_whole_text_is_refused_with_its_size():
    for refused in (STRATEGIES["adaptive"](TEXT), CorpusUnits.from_pieces(list(TEXT))):
        with pytest.raises(CorpusError, match=r"needs the whole text in memory, at least .* MB"):
            for_stored_text(refused, IDS, VOCABULARY)
