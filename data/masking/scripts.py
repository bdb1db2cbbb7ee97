"""Words in scripts that write no spaces between them, and texts that have no words."""

import importlib
import re
from typing import Any

from data.text.sources import CorpusError

# Han with its iteration marks, kana, Thai, Lao, Myanmar, Khmer
_RANGES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = re.compile(f"[{_RANGES}]")
_SINGLE = re.compile(f"[{_RANGES}]|[^{_RANGES}]+")
SAMPLE = 1_000_000  # characters of a text that are searched for words
LONGEST = 40  # characters of a word
FEW = 0.1  # of the characters of words; a text with more of others has no words
INSTALL = "pip install icu4py"


def segmented(piece: str) -> list[str]:
    """The words of a piece of text without spaces by the dictionaries of ICU, or its characters
    without them."""
    breaker = word_breaker()
    return _SINGLE.findall(piece) if breaker is None else list(breaker(piece, ""))


def word_breaker() -> Any:
    """The class of ICU that cuts a text into words; None if the package is not installed."""
    try:
        return importlib.import_module("icu4py.breakers").WordBreaker
    except ModuleNotFoundError:
        return None


def check_words(text: str, words: list[str]) -> None:
    """Raise CorpusError if the `words` between spaces and punctuation of a text are none: clauses
    of a script that nothing here can cut, or sequences such as those of DNA."""
    n_chars = sum(map(len, words))
    n_unspaced = len(UNSPACED.findall(text))
    if n_unspaced > FEW * n_chars and word_breaker() is None:
        raise CorpusError(
            "this masking.strategy needs words, but the script of this text has no spaces between"
            f" them: {INSTALL} to find them, or use random or span_characters"
        )

    long = [word for word in words if len(word) > LONGEST and not UNSPACED.search(word)]
    if sum(map(len, long)) > FEW * n_chars:
        raise CorpusError(
            "this masking.strategy needs words, but this text has none: parts such as"
            f" {long[0][:LONGEST]!r} have no spaces: use random or span_characters"
        )
