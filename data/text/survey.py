"""The survey of a text: the characters and the hash of each of its files, from which the split
follows."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from data.text.parallel import parallel_map
from data.text.sources import Block, CorpusError, Source, is_plain, read_blocks
from runs.files import append_line, write_atomically

# a block of a file, and how often each code point occurs in it
Counted = tuple[Source, Block, np.ndarray]


@dataclass(frozen=True)
class Surveyed(Source):
    """A file with its survey."""

    sha256: str  # of the file
    n_chars: int
    counts: dict[str, int]  # of each character
    n_copies: int  # rows that are left out


def survey(
    sources: Sequence[Source],
    cache: Path,
    announce: Callable[[str], None],
    n_bytes_read: Callable[[int], None],
) -> list[Surveyed]:
    """Survey files; those whose size, and time or hash, are as in an earlier survey are taken from
    the file `cache`.

    `announce` is called with a line before files are read, `n_bytes_read` with the number of their
    bytes that have been read since its last call. Raises CorpusError if a file is not UTF-8 text.
    """
    before = list(_load(cache))
    known = {entry.path: entry for entry in before}
    entries = {source: _renewed(known.get(source.path), source) for source in sources}
    new = [source for source, entry in entries.items() if not entry]
    if new:
        size = f"{sum(source.size for source in new) / 1e6:,.1f} MB"
        announce(
            f"reading {len(new):,} of {len(sources):,} files ({size}), which are new or have changed"
        )
    n_bytes_read(sum(source.size for source, entry in entries.items() if entry))
    blocks = ((source, block) for source in new for block in read_blocks(source))
    for source, counted in groupby(parallel_map(_count, blocks), key=itemgetter(0)):
        entries[source] = known[source.path] = entry = _summed(source, counted, n_bytes_read)
        append_line(cache, _line(entry))  # an interrupted survey goes on from the last line
    found = [entry for entry in entries.values() if entry]
    # lines out of date
    if len(before) + len(new) > len(found) or known != {entry.path: entry for entry in found}:
        write_atomically(cache, "".join(_line(entry) + "\n" for entry in found).encode())
    return found


def _line(entry: Surveyed) -> str:
    return json.dumps(vars(entry), default=str)


def _load(cache: Path) -> Iterator[Surveyed]:
    lines = cache.read_bytes().splitlines() if cache.exists() else []
    for line in lines:
        # an incomplete line: its file is surveyed again
        with contextlib.suppress(ValueError, TypeError, LookupError):
            entry = json.loads(line)
            yield Surveyed(**entry | {"path": Path(entry["path"])})


def _renewed(entry: Surveyed | None, source: Source) -> Surveyed | None:
    """The entry of a file that is as it was; None otherwise."""
    if entry is None or entry.size != source.size:
        return None
    is_same = entry.modified == source.modified or entry.sha256 == _sha256(source.path)
    return replace(entry, modified=source.modified) if is_same else None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(source_and_block: tuple[Source, Block]) -> Counted:
    """How often each code point occurs in a block."""
    source, block = source_and_block
    return (
        source,
        block,
        np.bincount(np.frombuffer(block.text.encode("utf-32-le"), dtype=np.uint32), minlength=1),
    )


def _summed(
    source: Source, parts: Iterable[Counted], n_bytes_read: Callable[[int], None]
) -> Surveyed:
    """The survey of a file from its blocks."""
    name = f"data.corpus: {str(source.path)!r}"
    counts = np.zeros(0, dtype=np.int64)
    digest, n_copies = hashlib.sha256(), 0
    for _, block, found in parts:
        if found[0]:
            raise CorpusError(f"{name} is a binary file (it has zero bytes): remove it")
        counts = np.pad(counts, (0, max(0, len(found) - len(counts))))
        counts[: len(found)] += found
        n_copies += block.n_copies
        content = block.text.encode()
        digest.update(content)
        if is_plain(source.path):
            n_bytes_read(len(content))
    if not counts.any():
        raise CorpusError(f"{name} has no text: remove it")
    if not is_plain(source.path):
        n_bytes_read(source.size)
    sha256 = digest.hexdigest() if is_plain(source.path) else _sha256(source.path)
    codes = counts.nonzero()[0]
    of_characters = dict(zip(map(chr, codes.tolist()), counts[codes].tolist(), strict=True))
    n_chars = int(counts.sum())
    return Surveyed(
        **vars(source), sha256=sha256, n_chars=n_chars, counts=of_characters, n_copies=n_copies
    )


def split(files: Sequence[Surveyed], folders: Sequence[str]) -> list[int]:
    """How many characters at the beginning of each file are for training; the others are for
    validation.

    Each folder is split by itself. A single file is split after its first 90%. Several files are
    sorted by their hashes, and the last tenth is for validation. Files stay whole, except that a
    file with more than a tenth of its folder may be cut. `folders` are those of the files,
    ascending.
    """
    found: list[int] = []
    for _, numbers in groupby(range(len(files)), key=lambda i: folders[i]):
        found += _of_folder([files[i] for i in numbers])
    return found


def _of_folder(files: Sequence[Surveyed]) -> list[int]:
    n_chars = sum(file.n_chars for file in files)
    n_training, found = int(n_chars * 0.9), [0] * len(files)
    left = n_training
    for i, file in sorted(enumerate(files), key=lambda each: each[1].sha256):
        is_cut = left < file.n_chars
        if not is_cut or file.n_chars > n_chars - n_training:
            found[i] = min(left, file.n_chars)
        left = max(0, left - file.n_chars)
    return found
