"""Reads the text that a user names: a file or a folder, in memory or on the disk."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from os.path import abspath, expanduser, isdir
from pathlib import Path

from data.parts import Corpus
from data.text.files import CorpusError, is_compressed
from data.text.hub import HUB, folder_of_data_set
from data.text.sources import (
    Listing,
    Reading,
    is_unicode,
    list_sources,
    read_blocks,
)
from data.text.stored import StoredText


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

    @property
    def contents(self) -> str:
        return self.stored.contents if self.has_documents else ""


def load_users_text(
    name: str,
    validation_name: str,
    reading: Reading,
    in_memory: int,
    cache: Path,
    announce: Callable[[str], None],
) -> Corpus:
    """The text of a file or a folder, and of another one for validation if that has a name.

    It is stored in `cache`, unless it is one text in a plain file of at most `in_memory` bytes.
    Raises CorpusError."""

    def listed(key: str, name: str) -> Listing:
        try:
            if name.startswith(HUB):
                return list_sources(folder_of_data_set(name, cache, announce), reading)
            if not name:
                raise CorpusError("cannot read a text without a name")
            path = Path(abspath(expanduser(name)))
            if isdir(path):
                announce(f"looking at the files of {name}")
            return list_sources(path, reading)
        except CorpusError as error:
            raise CorpusError(f"{key}: {error}") from error

    listing = listed("data.corpus", name)
    validation = listed("data.validation", validation_name) if validation_name else None
    path = name if name.startswith(HUB) else str(listing.path)
    # config files, plots and metrics could not hold it
    if not is_unicode(path):
        raise CorpusError(f"data.corpus: {path!r} is not UTF-8: rename the file")
    if (
        validation is None
        and listing.is_one_text(reading)
        and not is_compressed(listing.path)
        and listing.n_bytes <= in_memory
    ):
        texts = []
        for block in read_blocks(listing.sources[0], reading):
            texts += block.texts
        return Corpus.from_text(path, "".join(texts))

    stored = StoredText.open(listing, reading, cache, announce, validation)
    return StoredCorpus(path, *stored.samples, stored=stored)
