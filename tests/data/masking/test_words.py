import re
from collections import Counter

from data.corpus import Corpus
from data.masking.words import names_pattern

TEXT = "ROMEO:\nBut soft, what light breaks?\n\nJULIET:\nO Romeo, good Romeo! I hear old Friar John.\n\n"


def names_in(text: str) -> list[str]:
    return re.findall(names_pattern(text), text)


def test_names_are_speakers_and_capitals_inside_a_sentence():
    assert names_in(TEXT) == ["ROMEO", "JULIET", "Romeo", "Romeo", "Friar John"]


def test_a_verse_line_that_ends_in_a_colon_is_not_a_speaker():
    assert names_in("ROMEO:\nHeaven's will be done:\nAlack the day:\nGo hence.\n") == ["ROMEO"]


def test_a_speaker_line_is_short():
    assert names_in("ROMEO:\nGo.\n\nLines of verse that follow an empty one are longer:\nGo.\n\n") == ["ROMEO"]


def test_contractions_and_words_that_occur_in_lower_case_are_not_names():
    text = "ROMEO:\nNay, I'll go, Come with him, Let it be, All of it, he's Tybalt.\n\nAll:\nThey come, let all go!\n\n"
    assert names_in(text) == ["ROMEO", "Tybalt"]


def test_a_name_may_contain_words_that_are_not_names():
    text = "I saw the king of France, good King Edward, a friend.\nKing Edward spoke.\n"
    assert names_in(text) == ["France", "King Edward", "King Edward"]


def test_line_ends_may_be_those_of_windows():
    assert names_in("ROMEO:\r\nGo.\r\n\r\nNURSE:\r\nGo, Romeo.\r\n") == ["ROMEO", "NURSE", "Romeo"]


def test_a_text_without_names():
    assert names_in("no names here. None at all.") == names_in("") == []


def test_the_names_of_tiny_shakespeare(shakespeare):
    found = Counter(names_in(Corpus.from_text("tiny_shakespeare", shakespeare).training))
    assert not {"I'll", "I", "Come", "Let", "All", "And", "Sir", "What", "But"} & set(found)
    assert {"Romeo", "JULIET", "Warwick", "KING RICHARD III", "Rome", "Friar Laurence", "England"} <= set(found)
    assert sum(found.values()) > 8_000
