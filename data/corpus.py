"""The text to train on: tiny Shakespeare, the built-in play, or any UTF-8 text in one or many
files.

Tiny Shakespeare comes from the file that the environment variable `FOLIO_TINY_SHAKESPEARE` names,
from the cache, or from a download, in this order. Its hash is checked in each case.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from data.play.automaton import Automaton
from data.play.grammar import PLAY, grammar, play
from data.text.files import BYTE_ORDER_MARK, not_text
from data.text.hub import HUB, folder_of_data_set
from data.text.sources import CorpusError, Reading, is_unicode
from data.text.stored import StoredText, path_of_large_text
from runs.reading import read_bytes

TINY_SHAKESPEARE = "tiny_shakespeare"
TINY_SHAKESPEARE_SHA256 = (
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
)
ENVIRONMENT_VARIABLE = "FOLIO_TINY_SHAKESPEARE"
CACHE = Path(os.environ.get("FOLIO_CACHE") or Path(__file__).parent / "cache")
HOW_TO_GET_IT = f"set {ENVIRONMENT_VARIABLE} to a copy of the file, or data.corpus=PATH to any UTF-8 text"
# bytes: a larger text stays on the disk; strategies that look at words need 170 bytes per byte
IN_MEMORY = 4_000_000
AS_USUAL = Reading()

BANNER = """\
================================================================================
This is NOT tiny Shakespeare: {reason}.
The built-in play takes its place. For the real text,
{how}.
================================================================================"""


@dataclass(frozen=True, eq=False)  # labml hashes the values of items
class Corpus:
    """A text in two parts: models, strategies and counting learn from `training`; `validation` only
    measures them.

    If the text is `stored`, they are samples of 4 million characters. `name` is `tiny_shakespeare`,
    `play`, a path, or the reference of a function.
    """

    name: str
    training: str = field(repr=False)
    validation: str = field(repr=False)
    # the source of the text, if it is known exactly
    automaton: Automaton | None = field(default=None, repr=False)
    # the whole text, if it is too large for the memory or has documents
    stored: StoredText | None = field(default=None, repr=False)

    @classmethod
    def from_text(
        cls, name: str, text: str, automaton: Automaton | None = None
    ) -> "Corpus":
        """Split a text: the first 90% of its characters are for training, the rest for validation."""
        split = int(len(text) * 0.9)
        return cls(name, text[:split], text[split:], automaton)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each character occurs in both parts."""
        if self.stored:
            return self.stored.counts
        return Counter(self.training) + Counter(self.validation)

    @property
    def is_sample(self) -> bool:
        """Whether `training` is only a part of the training text."""
        return self.stored is not None and self.stored.n_training > len(self.training)

    @property
    def has_documents(self) -> bool:
        """Whether the text has documents, each followed by `[SEP]`, or is one text."""
        return self.stored is not None and self.stored.has_documents

    @property
    def sha256(self) -> str:
        """The hash of the whole text in UTF-8, which identifies the text whatever its name."""
        if self.stored:
            return self.stored.sha256
        return hashlib.sha256((self.training + self.validation).encode()).hexdigest()


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
        return _load_path(name, announce, reading, validation)

    try:
        return Corpus.from_text(TINY_SHAKESPEARE, _tiny_shakespeare(announce))
    except CorpusError as error:
        # the user has named a text
        if name == TINY_SHAKESPEARE or os.environ.get(ENVIRONMENT_VARIABLE):
            raise CorpusError(f"{error}: {HOW_TO_GET_IT}") from error
        announce(BANNER.format(reason=error, how=HOW_TO_GET_IT))
        return load_corpus(PLAY)


def _load_path(
    name: str,
    announce: Callable[[str], None],
    reading: Reading,
    validation_name: str,
) -> Corpus:
    def large_text(name: str) -> Path | None:
        if name.startswith(HUB):
            return folder_of_data_set(name, CACHE, announce)
        return path_of_large_text(name, 0 if validation_name else IN_MEMORY, reading)

    large = large_text(name)
    text = _read_text(name, "data.corpus") if large is None else ""
    path = name
    if not name.startswith(HUB):
        path = str(Path(name).expanduser().resolve())
    # config files, plots and metrics could not hold it
    if not is_unicode(path):
        raise CorpusError(
            f"data.corpus: the name {path!r} is not UTF-8: rename the file"
        )
    if large is None:
        return Corpus.from_text(path, text)

    validation = None
    if validation_name:
        validation = large_text(validation_name)
        if validation is None:
            _read_text(validation_name, "data.validation")
    stored = StoredText.open(large, reading, CACHE, announce, validation)
    return Corpus(path, *stored.samples, stored=stored)


def _tiny_shakespeare(announce: Callable[[str], None]) -> str:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    cached = CACHE / "tiny_shakespeare.txt"
    if named or cached.exists():
        path = named or str(cached)
        source = "the cached text (delete it to download it again)"
        if named:
            source = ENVIRONMENT_VARIABLE
        text = _read_text(path, source)
        _check_hash(text.encode("utf-8"), f"{source}: {path!r}")
        return text

    from data.text.download import downloaded

    return downloaded(cached, _check_hash, announce)


def _check_hash(content: bytes, source: str) -> None:
    if hashlib.sha256(content).hexdigest() != TINY_SHAKESPEARE_SHA256:
        raise CorpusError(f"{source} is not tiny Shakespeare (its SHA-256 is wrong)")


def _read_text(name: str, source: str) -> str:
    """The text of a regular UTF-8 file with its line ends as they are. `source` is the setting that
    named the file."""
    try:
        content = read_bytes(Path(name).expanduser())
        text = content.decode().removeprefix(BYTE_ORDER_MARK)
        if not text:
            raise OSError("it is empty")
        if "\0" in text:
            raise OSError("it is a binary file: it has zero bytes")
        return text
    except UnicodeDecodeError as error:
        reason = not_text(error.object[:8], error.start)
        raise CorpusError(f"{source}: {name!r} {reason}") from error
    # unreadable; an unknown ~user; a name that no file can have
    except (OSError, RuntimeError, ValueError) as error:
        raise CorpusError(
            f"{source}: cannot read {name!r} ({getattr(error, 'strerror', None) or error})"
        ) from error
