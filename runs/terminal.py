"""Text for a terminal."""

import re

# all but tab and line feed; lone surrogates
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """A text of the corpus for a terminal: control characters, which could command it, become
    escapes like \\x1b."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def in_one_line(text: str) -> str:
    """A name or a message for one line: characters that cannot be printed become escapes like \\n."""
    characters = [
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    ]
    return "".join(characters)
