"""A corpus of the documents that a user's function yields."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import data.corpus
from data.corpus import Corpus
from data.text.files import CorpusError, in_batches
from data.text.sources import BLOCK, Block, blocks_of, is_unicode
from data.text.stored import StoredText, short_hash
from data.users_text import StoredCorpus


def stored_documents(
    name: str, documents: Iterable[str], announce: Callable[[str], None] = print
) -> Corpus:
    """Documents on the disk, as those of files are; they are read at each start.

    Raises CorpusError if a document is not a string of Unicode text, or if all are empty.
    """

    def read(number: int) -> Iterator[Block]:
        return blocks_of(in_batches(checked(name, documents), BLOCK))

    folder = data.corpus.CACHE / "texts" / short_hash(str(Path(name).absolute()))
    # nothing tells whether the function yields the same as before
    key = uuid.uuid4().hex
    what = f"the documents of {name}"
    stored = StoredText.read(read, ["."], True, folder, key, what, announce)
    return StoredCorpus(name, *stored.samples, stored=stored)


def checked(name: str, documents: Iterable[str]) -> Iterator[str]:
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, str):
            kind = type(document).__name__
            raise CorpusError(f"{name}: document {number} is not a string, but {kind}")
        if not is_unicode(document):
            raise CorpusError(
                f"{name}: document {number} has a lone surrogate: remove it"
            )
        yield document
