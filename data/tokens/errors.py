"""Errors of tokenizers."""

from collections.abc import Iterator
from contextlib import contextmanager

from data.text.sources import CorpusError


class TokensError(CorpusError):
    """A tokenizer is missing or unusable; the message is one line for the user."""


@contextmanager
def as_tokens_error(message: str) -> Iterator[None]:
    """Raise any error inside as a TokensError, also a panic of `tokenizers`: a BaseException."""
    try:
        yield
    except (TokensError, OSError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:100]
        raise TokensError(f"{message} ({reason})") from error
