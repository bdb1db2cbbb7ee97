"""The text to train on: tiny Shakespeare, the built-in play, or any UTF-8 text in one or many
files.

Tiny Shakespeare comes from the file that the environment variable `FOLIO_TINY_SHAKESPEARE` names,
from the cache, or from a download, in this order. Its hash is checked in each case.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from data.parts import Corpus
from data.play.grammar import PLAY, grammar, play
from data.text.sources import CorpusError, Reading
from data.users_text import load_users_text

TINY_SHAKESPEARE = "tiny_shakespeare"
TINY_SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)
ENVIRONMENT_VARIABLE = "FOLIO_TINY_SHAKESPEARE"
CACHE = Path(os.environ.get("FOLIO_CACHE") or Path(__file__).parent / "cache")
HOW_TO_GET_IT = f"set {ENVIRONMENT_VARIABLE} to a copy of the file, or data.corpus=PATH to any UTF-8 text"
LARGEST = 2_000_000  # bytes; tiny Shakespeare has 1,115,394
# bytes: a larger text stays on the disk; strategies that look at words need 170 bytes per byte
IN_MEMORY = 4_000_000
AS_USUAL = Reading()

BANNER = """\
================================================================================
This is NOT tiny Shakespeare: {reason}.
The built-in play takes its place. For the real text,
{how}.
================================================================================"""


def load_corpus(
    name: str,
    announce: Callable[[str], None] = print,
    reading: Reading = AS_USUAL,
    validation: str = "",
) -> Corpus:
    """Load a corpus by name, and if it is the path of a text, its validation part by path.

    `name` is `tiny_shakespeare`, `play`, `auto` (tiny Shakespeare; the play if cache or download
    fails), the path of a file or a folder (`data.text.sources`), or a data set of the Hub
    (`data.text.hub`); `reading` says how files are read. `announce` is called with a line before a
    download or a wait, and with a banner if the play replaces tiny Shakespeare. Raises CorpusError
    if the text is missing, empty or not UTF-8.
    """
    if name == PLAY:
        return Corpus.from_text(PLAY, play(), grammar())
    if name not in ("auto", TINY_SHAKESPEARE):
        return load_users_text(name, validation, reading, IN_MEMORY, CACHE, announce)

    try:
        return Corpus.from_text(TINY_SHAKESPEARE, _tiny_shakespeare(announce))
    except CorpusError as error:
        # the user has named a text
        if name == TINY_SHAKESPEARE or os.environ.get(ENVIRONMENT_VARIABLE):
            raise CorpusError(f"{error}: {HOW_TO_GET_IT}") from error
        announce(BANNER.format(reason=error, how=HOW_TO_GET_IT))
        return load_corpus(PLAY)


def _tiny_shakespeare(announce: Callable[[str], None]) -> str:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    path = CACHE / "tiny_shakespeare.txt"
    source = "the cached text (delete it to download it again)"
    if named:
        path = Path(named)
        source = ENVIRONMENT_VARIABLE
    elif not path.exists():
        from data.text.download import downloaded

        return downloaded(path, _check_hash, announce)

    try:
        # opening does not wait for the writer of a pipe, and a wrong file may be of any size
        descriptor = os.open(path.expanduser(), os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            content = file.read(LARGEST)
    # RuntimeError: an unknown ~user
    except (OSError, RuntimeError) as error:
        raise CorpusError(f"{source}: cannot read {str(path)!r} ({error})") from error
    _check_hash(content, f"{source}: {str(path)!r}")
    return content.decode()


def _check_hash(content: bytes, source: str) -> None:
    if hashlib.sha256(content).hexdigest() != TINY_SHAKESPEARE_SHA256:
        raise CorpusError(f"{source} is not tiny Shakespeare (its SHA-256 is wrong)")
