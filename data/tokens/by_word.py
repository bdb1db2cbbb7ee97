"""Which tokenizers encode a text word by word, so that each word needs to be encoded only once."""

import re
from collections.abc import Mapping
from typing import Any

# The BPE of Folio. Words with the space before them and with apostrophes inside, numbers,
# punctuation, and runs of space up to the last newline. No match crosses a newline before a
# non-space or depends on what follows it, so a text may be cut there.
SPLIT = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s*\n|\s+(?!\S)|\s"
WORDS = re.compile(r"(?= \S)")
SPLIT_AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
# that change each character by itself
OF_CHARACTERS = {None, "BertNormalizer", "Lowercase"}


def is_by_word(content: Mapping[str, Any]) -> bool:
    """Whether the tokens of a text are those of its parts between `WORDS`, for a tokenizer.json.

    True for the BPE of Folio, for GPT-2's and for BERT's WordPiece. Others may put a space before
    each text, have tokens of several words, or normalize across spaces.
    """
    normalizer = content.get("normalizer") or {}
    if content["added_tokens"] or normalizer.get("type") not in OF_CHARACTERS:
        return False

    levels = content.get("pre_tokenizer") or {}
    if levels.get("type") in SPLIT_AT_SPACES:
        return True

    levels = levels.get("pretokenizers", [levels])
    last = levels[-1]
    if last.get("type") != "ByteLevel" or last["add_prefix_space"]:
        return False
    if len(levels) == 1:
        return last.get("use_regex", True)

    return len(levels) == 2 and levels[0].get("pattern") == {"Regex": SPLIT}
