"""Words of scripts without spaces, and texts without words."""

import pytest

from data.masking import scripts
from data.masking.scripts import segmented, word_breaker
from data.masking.strategies import STRATEGIES
from data.masking.words import cut, words_of
from data.text.sources import CorpusError
from tests.conftest import needed

CHINESE = "人人生而自由,在尊严和权利上一律平等。" * 20
THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระ\n" * 20
DNA = "ACGTTGCA" * 30 + "\n"
OF_WORDS = sorted(STRATEGIES.keys() - {"random", "span_characters"})


@pytest.fixture
def icu():
    needed(word_breaker(), "needs icu4py")


@pytest.fixture
def no_icu(monkeypatch):
    monkeypatch.setattr(scripts, "word_breaker", lambda: None)


def test_words_are_those_of_dictionaries(icu):
    assert words_of("人人生而自由,在尊严上 The cat") == [
        *["人", "人生", "而", "自由", "在", "尊严", "上"],
        *["The", "cat"],
    ]
    assert "เกิด" in words_of(THAI)
    assert "".join(cut(CHINESE)) == CHINESE


@pytest.mark.parametrize("name", OF_WORDS)
def test_strategies_hide_words_of_dictionaries(icu, name):
    segmenter = STRATEGIES[name](CHINESE)
    if name == "span":
        segmenter = segmenter.base
    units = getattr(segmenter, "units", segmenter).unit_of
    lengths = units.unique_consecutive(return_counts=True)[1]

    assert lengths.max() <= (16 if name in ("syntax", "pmi") else 4)
    assert lengths.float().mean() > 1.2


@pytest.mark.parametrize("name", OF_WORDS)
@pytest.mark.parametrize("text", [CHINESE, THAI, "He said: " + CHINESE])
def test_a_script_without_spaces_needs_a_dictionary(no_icu, name, text):
    with pytest.raises(CorpusError, match="icu4py"):
        STRATEGIES[name](text)


def test_a_few_foreign_characters_are_units_of_their_own(no_icu):
    text = "the cat sat on the mat. " * 20 + "中文\n"

    assert segmented("a中文b") == ["a", "中", "文", "b"]
    assert STRATEGIES["whole_word"](text).unit_of[-3:].diff().tolist() == [1, 1]


@pytest.mark.parametrize("name", OF_WORDS)
def test_sequences_have_no_words(name):
    with pytest.raises(CorpusError, match="ACGTTGCA"):
        STRATEGIES[name](DNA * 10)


@pytest.mark.parametrize("name", ["random", "span_characters"])
def test_strategies_of_characters_need_no_words(no_icu, name):
    assert STRATEGIES[name](CHINESE + DNA)
