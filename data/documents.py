"""A corpus of documents in memory."""

from collections.abc import Iterable

from data.corpus import Corpus
from data.text.sources import CorpusError, is_unicode


def joined(name: str, documents: Iterable[str]) -> Corpus:
    """Documents with a newline between them, split like any other text.

    Raises CorpusError if a document is not a string of Unicode text, or if all are empty.
    """
    texts = []
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, str):
            kind = type(document).__name__
            raise CorpusError(f"{name}: document {number} is not a string, but {kind}")
        if not is_unicode(document):
            raise CorpusError(
                f"{name}: document {number} has a lone surrogate: remove it"
            )
        texts.append(document)

    if not any(texts):
        raise CorpusError(f"{name}: the documents have no text")

    return Corpus.from_text(name, "\n".join(texts))
