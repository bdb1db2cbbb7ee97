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
        raise TokensError(f"{message} ({reason_of(error)})") from error


def reason_of(error: BaseException) -> str:
    """The beginning of an error's message, in one line."""
    return " ".join(str(error).split())[:100]
