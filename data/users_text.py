"""Reads the text that a user names: a file or a folder, in memory or on the disk."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from data.parts import Corpus
from data.text.files import BYTE_ORDER_MARK, not_text
from data.text.hub import HUB, folder_of_data_set
from data.text.sources import CorpusError, Reading, is_unicode
from data.text.stored import StoredText, path_of_large_text
from runs.reading import read_bytes


@dataclass(frozen=True, eq=False)
class StoredCorpus(Corpus):
    """A text that is too large for the memory, or has documents: its parts are samples of 4 million characters."""

    stored: StoredText = field(kw_only=True, repr=False)

    @cached_property
    def counts(self) -> Counter[str]:
        return self.stored.counts

    @property
    def is_sample(self) -> bool:
        return self.stored.n_training > len(self.training)

    @property
    def has_documents(self) -> bool:
        return self.stored.has_documents

    @property
    def sha256(self) -> str:
        return self.stored.sha256


def load_users_text(
    name: str,
    validation_name: str,
    reading: Reading,
    in_memory: int,
    cache: Path,
    announce: Callable[[str], None],
) -> Corpus:
    """The text of a file or a folder, and of another one for validation if that has a name. They
    are stored in `cache` if they have more than `in_memory` bytes. Raises CorpusError."""

    def large_text(name: str) -> Path | None:
        if name.startswith(HUB):
            return folder_of_data_set(name, cache, announce)
        return path_of_large_text(name, 0 if validation_name else in_memory, reading)

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
    stored = StoredText.open(large, reading, cache, announce, validation)
    return StoredCorpus(path, *stored.samples, stored=stored)


def _read_text(name: str, source: str) -> str:
    """The text of a regular UTF-8 file with its line ends as they are. `source` is the key that
    names it."""
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
