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
from data.text.sources import Block, CorpusError, Reading, Source, is_plain, read_blocks
from runs.files import append_line, write_atomically

# a block of a file, and how often each code point occurs in it
Counted = tuple[Source, Block, np.ndarray]


@dataclass(frozen=True)
class Surveyed(Source):
    """A file with its survey."""

    sha256: str  # of the file
    n_chars: int
    counts: dict[str, int]  # of each character


def survey(
    sources: Sequence[Source],
    reading: Reading,
    cache: Path,
    announce: Callable[[str], None],
    n_bytes_read: Callable[[int], None],
) -> list[Surveyed]:
    """Survey files; those whose size, and time or hash, are as in an earlier survey are taken from
    the file `cache`.

    `announce` is called with a line before files are read, `n_bytes_read` with the number of their
    bytes that have been read since its last call. Raises CorpusError if a file is not UTF-8 text.
    """
    lines = list(_load(cache))
    known = {entry.path: entry for entry in lines}
    entries = {source: _renewed(known.get(source.path), source) for source in sources}
    new = [source for source in sources if not entries[source]]
    n_bytes = sum(source.size for source in new)
    if new:
        announce(
            f"reading {len(new):,} of {len(sources):,} files ({n_bytes / 1e6:,.1f} MB), which are"
            " new or have changed"
        )

    n_bytes_read(sum(source.size for source in sources) - n_bytes)
    for source, counted in groupby(
        parallel_map(_count, _blocks(new, reading)), key=itemgetter(0)
    ):
        entry = _summed(source, counted, n_bytes_read)
        append_line(
            cache, _line(entry)
        )  # an interrupted survey goes on from the last line
        lines.append(entry)
        known[source.path] = entry
        entries[source] = entry

    surveyed = {entry.path: entry for entry in entries.values() if entry}
    if len(lines) > len(surveyed) or known != surveyed:  # lines are out of date
        content = "".join(_line(entry) + "\n" for entry in surveyed.values())
        write_atomically(cache, content.encode())

    return list(surveyed.values())


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
    if entry.modified == source.modified or entry.sha256 == _sha256(source.path):
        return replace(entry, modified=source.modified)

    return None


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blocks(
    sources: Iterable[Source], reading: Reading
) -> Iterator[tuple[Source, Block]]:
    for source in sources:
        for block in read_blocks(source, reading):
            yield source, block


def _count(source_and_block: tuple[Source, Block]) -> Counted:
    """How often each code point occurs in a block."""
    source, block = source_and_block
    codes = np.frombuffer(block.text.encode("utf-32-le"), dtype=np.uint32)
    return source, block, np.bincount(codes, minlength=1)


def _summed(
    source: Source, parts: Iterable[Counted], n_bytes_read: Callable[[int], None]
) -> Surveyed:
    """The survey of a file from its blocks."""
    name = f"data.corpus: {str(source.path)!r}"
    counts = np.zeros(0, dtype=np.int64)
    digest = hashlib.sha256()
    for _, block, of_block in parts:
        if of_block[0]:
            raise CorpusError(f"{name} is a binary file (it has zero bytes): remove it")
        counts = np.pad(counts, (0, max(0, len(of_block) - len(counts))))
        counts[: len(of_block)] += of_block
        if is_plain(source.path):
            content = block.text.encode()
            digest.update(content)
            n_bytes_read(len(content))

    if not counts.any():
        raise CorpusError(f"{name} has no text: remove it")

    sha256 = digest.hexdigest()
    if not is_plain(source.path):
        n_bytes_read(source.size)
        sha256 = _sha256(source.path)

    of_characters = {chr(code): int(counts[code]) for code in counts.nonzero()[0]}
    n_chars = int(counts.sum())
    return Surveyed(
        **vars(source),
        sha256=sha256,
        n_chars=n_chars,
        counts=of_characters,
    )


def split(files: Sequence[Surveyed], folders: Sequence[str]) -> list[int]:
    """How many characters at the beginning of each file are for training; the others are for
    validation.

    Each folder is split by itself. A single file is split after its first 90%. Several files are
    sorted by their hashes, and the last tenth is for validation. Files stay whole, except that a
    file with more than a tenth of its folder may be cut. `folders` are those of the files,
    ascending.
    """
    n_training = []
    for _, group in groupby(zip(folders, files, strict=True), key=itemgetter(0)):
        n_training += _split_folder([file for _, file in group])

    return n_training


def _split_folder(files: Sequence[Surveyed]) -> list[int]:
    n_chars = sum(file.n_chars for file in files)
    left = int(n_chars * 0.9)
    longest_whole = n_chars - left
    n_training = [0] * len(files)
    for i in sorted(range(len(files)), key=lambda i: files[i].sha256):
        n = files[i].n_chars
        if n <= left or n > longest_whole:
            n_training[i] = min(left, n)
        left = max(0, left - n)

    return n_training
