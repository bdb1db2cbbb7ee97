import re
from collections import Counter

import pytest

from data.corpus import Corpus
from data.masking.words import names_pattern

SPEECHES = "ROMEO:\nBut soft, what light breaks?\n\nJULIET:\nO Romeo, good Romeo! I hear old Friar John.\n\n"
CONTRACTIONS = (
    "ROMEO:\nNay, I'll go, Come with him, Let it be, All of it, he's Tybalt.\n\nAll:\nThey come, let all go!\n\n"
)
KINGS = "I saw the king of France, good King Edward, a friend.\nKing Edward spoke.\n"
CASES = {
    "speakers, and capitals inside a sentence": (SPEECHES, ["ROMEO", "JULIET", "Romeo", "Romeo", "Friar John"]),
    "no verse line that ends in a colon": ("ROMEO:\nHeaven's will be done:\nAlack the day:\nGo hence.\n", ["ROMEO"]),
    "no long line that ends in a colon": (
        "ROMEO:\nGo.\n\nLines of verse that follow an empty one are longer:\nGo.\n\n",
        ["ROMEO"],
    ),
    "no contractions, and no words that occur in lower case": (CONTRACTIONS, ["ROMEO", "Tybalt"]),
    "words that are not names, inside a name": (KINGS, ["France", "King Edward", "King Edward"]),
    "line ends of Windows": ("ROMEO:\r\nGo.\r\n\r\nNURSE:\r\nGo, Romeo.\r\n", ["ROMEO", "NURSE", "Romeo"]),
    "none": ("no names here. None at all.", []),
    "an empty text": ("", []),
}


def names_in(text: str) -> list[str]:
    return re.findall(names_pattern(text), text)


@pytest.mark.parametrize(("text", "names"), CASES.values(), ids=CASES)
def test_names(text, names):
    assert names_in(text) == names


def test_the_names_of_tiny_shakespeare(shakespeare):
    found = Counter(names_in(Corpus.from_text("tiny_shakespeare", shakespeare).training))
    assert not {"I'll", "I", "Come", "Let", "All", "And", "Sir", "What", "But"} & set(found)
    assert {"Romeo", "JULIET", "Warwick", "KING RICHARD III", "Rome", "Friar Laurence", "England"} <= set(found)
    assert sum(found.values()) > 8_000
