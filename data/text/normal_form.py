"""The normal form of a text, in the cache: the text of all documents in one UTF-8 file, and a table
of their pieces.

Documents, copies, the split and the tokens follow from it. The files of the text are read once.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data.text.files import UnusableFileError
from data.text.growing import growing_files, progress_in
from data.text.sources import Block

TEXT = "text"
PIECES = "pieces"
# A piece is a document, or a part of a long one.
PIECE = np.dtype(
    [
        ("n_bytes", np.uint32),
        ("n_chars", np.uint32),
        ("is_end", np.bool_),  # of its document
        ("source", np.uint32),
        ("hash", np.uint64),  # of the document, in its last piece
    ]
)

Read = Callable[[int], Iterator[Block]]  # the blocks of a source, by its number


class Item(NamedTuple):
    """A block to be read, and its place."""

    source: int
    number: int  # in its source
    continues: bool  # whether it begins inside a document
    block: Block


class Normalized(NamedTuple):
    """A block in the normal form."""

    content: bytes  # UTF-8
    pieces: np.ndarray  # [n_pieces] of PIECE
    counts: dict[str, int]  # how often each character occurs


@dataclass(frozen=True)
class NormalForm:
    """A text that has been read."""

    folder: Path
    counts: Counter[str]  # how often each character occurs
    sha256: list[str]  # of each source that is one text
    left_out: dict[str, str]  # the numbers of sources that cannot be used, and why

    @classmethod
    def of_finished(cls, folder: Path, key: str, n_sources: int) -> "NormalForm | None":
        """What an earlier call has read; None if it did not finish."""
        state = progress_in(folder, key).get("state", {})
        if state.get("source") != n_sources:
            return None
        counts = Counter(state["counts"])
        return cls(folder, counts, state["sha256"], state["left_out"])

    @cached_property
    def pieces(self) -> np.ndarray:
        """`[n_pieces]` of PIECE, in the order of the text."""
        return np.fromfile(self.folder / PIECES, PIECE)

    @cached_property
    def file(self) -> FileIO:
        """The file of the text. It stays readable if its name is given to another one."""
        return FileIO(self.folder / TEXT)

    def read(self, begin: int, n_bytes: int) -> bytes:
        """Part of the text, in UTF-8."""
        return os.pread(self.file.fileno(), n_bytes, begin)

    def __reduce__(self) -> tuple[Any, ...]:
        # another process opens the file again
        return NormalForm, (self.folder, self.counts, self.sha256, self.left_out)


def normalize(
    read: Read,
    n_sources: int,
    folder: Path,
    key: str,
    has_documents: bool,
    n_bytes_done: Callable[[int], None],
) -> NormalForm:
    """Write the normal form of a text into `folder`; goes on where an earlier call with the same
    `key` stopped.

    Without documents, each source is one text, whose SHA-256 is kept. `n_bytes_done` is called with
    the number of bytes that have been written since its last call. Raises CorpusError or OSError.
    """
    with growing_files(folder, (TEXT, PIECES), key) as output:
        state = output.state or {"source": 0, "block": 0, "sha256": [], "left_out": {}}
        counts = Counter(state.get("counts", {}))
        long = LongDocument()
        is_whole = True  # whether the text that is written ends with a document
        n_bytes_done(output.files[TEXT].tell())
        blocks = items(read, n_sources, state.copy(), has_documents)
        state["counts"] = counts
        for item in blocks:
            content, pieces, of_block = normalized(item)
            counts.update(of_block)
            long.add(item.continues, content, pieces)
            output.files[TEXT].write(content)
            output.files[PIECES].write(pieces.data)
            n_bytes_done(len(content))
            if len(pieces):
                is_whole = bool(pieces["is_end"][-1])
            if is_whole and not has_documents:
                state["sha256"].append(long.sha256)
            if is_whole and output.is_time_to_note():
                output.note(state | {"source": item.source, "block": item.number + 1})
        output.note(state | {"source": n_sources, "block": 0})
    return NormalForm(folder, counts, state["sha256"], state["left_out"])


def items(
    read: Read, n_sources: int, state: dict[str, Any], has_documents: bool
) -> Iterator[Item]:
    """The blocks that are not written yet. Adds sources that cannot be used to `left_out`."""

    def usable(source: int) -> Iterator[Block]:
        try:
            yield from read(source)
        except UnusableFileError as error:
            state["left_out"][str(source)] = str(error)

    n_done = state["block"]
    for source in range(state["source"], n_sources):
        continues = not has_documents
        for number, block in enumerate(islice(usable(source), n_done, None), n_done):
            yield Item(source, number, continues, block)
            if block.texts:
                continues = not block.is_whole
        n_done = 0


def normalized(item: Item) -> Normalized:
    """The hash of a document that is not whole in the block is 0."""
    texts, is_whole = item.block
    contents = [text.encode() for text in texts]
    pieces = np.zeros(len(texts), PIECE)
    pieces["n_chars"] = list(map(len, texts))
    pieces["n_bytes"] = list(map(len, contents))
    pieces["source"] = item.source
    pieces["is_end"] = True
    pieces["is_end"][-1:] = is_whole

    first = int(item.continues)
    last = len(texts) if is_whole else len(texts) - 1
    digests = [sha256(content).digest()[:8] for content in contents[first:last]]
    pieces["hash"][first:last] = np.frombuffer(b"".join(digests), np.uint64)

    content = b"".join(contents)
    codes = np.frombuffer(content, np.uint8)
    if len(content) > pieces["n_chars"].sum():  # not ASCII only
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
    counts = np.bincount(codes)
    of_characters = {chr(code): int(counts[code]) for code in counts.nonzero()[0]}
    return Normalized(content, pieces, of_characters)


class LongDocument:
    """Hashes a document that is longer than a block, or one text."""

    def __init__(self) -> None:
        self.digest = sha256()
        self.sha256 = ""  # of the last document that has ended

    def add(self, continues: bool, content: bytes, pieces: np.ndarray) -> None:
        """Read the first piece of a block, if it `continues` a document, and the last one if its
        document goes on. Sets the hash of a document that ends."""
        if continues and len(pieces):
            self.digest.update(content[: pieces["n_bytes"][0]])
            if pieces["is_end"][0]:
                pieces["hash"][:1] = np.frombuffer(self.digest.digest()[:8], np.uint64)
                self.sha256 = self.digest.hexdigest()
                self.digest = sha256()
        if len(pieces) > continues and not pieces["is_end"][-1]:
            self.digest.update(content[-int(pieces["n_bytes"][-1]) :])
