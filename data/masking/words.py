"""Cuts a text into pieces: its words and the characters between them."""

import re

WORD = re.compile(r"\w+(?:['’]\w+)*")

# Closed-class words of English, with Shakespeare's: articles, pronouns, prepositions, conjunctions, auxiliaries.
FUNCTION_WORDS = frozenset(
    WORD.findall("""
    a an the this that these those my thy his her its our your their mine thine
    i me we us you thou thee ye he him she it they them who whom whose which what
    of to in for with on at by from up about into over after upon unto against through without within
    and or but nor so yet if then than as though because while when where why how
    is am are was were be been being art wert do does did dost doth have has had hast hath
    will would shall should may might can could must wilt shalt not no nor o oh ay
    """)
)


def cut(text: str, *patterns: str) -> list[str]:
    """The pieces of a text: matches of the `patterns`, earlier patterns first, then words, then single characters."""
    return re.findall("|".join([*patterns, WORD.pattern, "."]), text, re.DOTALL)
