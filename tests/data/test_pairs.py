import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.checks import SHORTEST_PAIR
from data.corpus import CorpusError
from data.play.grammar import play
from data.vocabulary import MASK, PAD, Vocabulary
from data.windows.pairs import CLS, SEP, PairWindows, speech_borders

TEXT = play(50_000)
VOCABULARY = Vocabulary(TEXT, (PAD, MASK, CLS, SEP))


def pairs(text, objective, *, longest=64, seed=0):
    vocabulary = Vocabulary(text, (PAD, MASK, CLS, SEP))
    return PairWindows(
        objective, vocabulary.encode(text), text, vocabulary, seed, longest
    )


def pairs_in(batch):
    """The two texts of each pair with their offsets, and its label."""
    labels = batch.extras["pair_labels"].tolist()
    for tokens, offsets, label in zip(
        batch.tokens, batch.offsets.tolist(), labels, strict=True
    ):
        text = VOCABULARY.decode(tokens)
        assert text.startswith(CLS)
        assert text.endswith(SEP)

        first, second = text.removeprefix(CLS).removesuffix(SEP).split(SEP)
        yield first, offsets[1], second, offsets[len(first) + 2], label


def test_borders_are_the_offsets_where_speeches_begin():
    text = "A:\nhello\n\nB:\nwhat\n \nC:\nwell\n\n"
    vocabulary = Vocabulary(text)
    borders = speech_borders(vocabulary.encode(text), text, vocabulary)

    assert [text[border] for border in borders] == ["B", "C"]


@pytest.mark.parametrize("objective", ["nsp", "sop"])
@pytest.mark.parametrize("seq_len", [SHORTEST_PAIR, 32, 63, 64])
def test_a_pair_fills_its_window_with_two_segments(objective, seq_len):
    batch = pairs(TEXT, objective).draw(16, seq_len)
    segments = batch.extras["segments"]

    assert batch.tokens.shape == batch.offsets.shape == segments.shape == (16, seq_len)

    for row, (first, _, second, _, _) in enumerate(pairs_in(batch)):
        assert len(first) + len(second) + 3 == seq_len
        assert 0 <= len(first) - len(second) <= 1

        begin = len(first) + 2
        assert segments[row].tolist() == [0] * begin + [1] * (seq_len - begin)

        text = "".join(TEXT[offset] for offset in batch.offsets[row].tolist())
        assert text[1 : 1 + len(first)] == first
        assert text[begin:-1] == second


def test_next_sentence_pairs_meet_at_borders_and_are_labeled_by_whether_the_text_continues():
    borders = set(speech_borders(VOCABULARY.encode(TEXT), TEXT, VOCABULARY))
    for first, begin_first, second, begin_second, label in pairs_in(
        pairs(TEXT, "nsp").draw(512, 64)
    ):
        end = begin_first + len(first)
        assert {end, begin_second} <= borders
        # A true continuation is never labeled as a false one, even if it comes from another speech.
        assert label == (TEXT[end : end + len(second)] == second)


def test_another_speech_with_the_same_text_counts_as_the_true_one():
    text = "A:\nyes, my lord\n\n" * 100
    assert pairs(text, "nsp", longest=24).draw(256, 24).extras["pair_labels"].all()
    with pytest.raises(CorpusError, match="too few speeches"):
        pairs("no empty line in here. " * 100, "nsp")


def test_sentence_order_pairs_are_neighbors_in_the_text():
    for first, begin_first, second, begin_second, label in pairs_in(
        pairs(TEXT, "sop").draw(256, 65)
    ):
        if label:
            assert begin_first + len(first) == begin_second
        else:
            assert begin_second + len(second) == begin_first


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_half_of_the_labels_are_one(objective):
    labels = pairs(TEXT, objective, seed=1).draw(20_000, 32).extras["pair_labels"]
    assert abs(labels.float().mean() - 0.5) < 4 * 0.5 / 20_000**0.5


@given(
    text=st.text(alphabet="ab\n", min_size=40, max_size=400),
    seq_len=st.integers(SHORTEST_PAIR, 30),
)
def test_any_text_gives_pairs_inside_the_text_or_is_refused(text, seq_len):
    try:
        source = pairs(text, "nsp", longest=seq_len)
    except CorpusError:
        return

    batch = source.draw(8, seq_len)

    assert batch.offsets.min() >= 0
    assert batch.offsets.max() < len(text)
