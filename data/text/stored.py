"""A large text: it stays on the disk, as token ids in memory-mapped files that are converted once."""

import contextlib
import hashlib
import json
import mmap
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from data.text.conversion import DOCUMENTS, TRAINING, VALIDATION, convert
from data.text.sources import CorpusError, inside, is_plain, list_sources, read_ranges
from data.text.survey import Surveyed, split, survey
from data.vocabulary import Vocabulary
from runs.files import locked, reporting_os_errors, write_json
from runs.reading import read_bytes

SAMPLE = 4_000_000  # characters of each part: the sample for strategies, BPE and counting
PIECE = 4_000  # characters of the sample that follow each other in the text
VERSION = 4  # of the conversion; a new version converts again


def path_of_large_text(name: str, in_memory: int) -> Path | None:
    """The path of a text that stays on the disk: a folder, or a file that is compressed or above
    `in_memory` bytes. None for any other name."""
    try:
        path = Path(name).expanduser()
        is_large = path.is_file() and (path.stat().st_size > in_memory or not is_plain(path))
        return path.resolve() if is_large or (name and path.is_dir()) else None
    except (OSError, RuntimeError, ValueError):  # such a name fails again where the text is read
        return None


class StoredIds:
    """Token ids in a file, memory-mapped. Windows are read from it as from a tensor."""

    def __init__(self, path: Path, dtype: str, counts: Mapping[str, list[int]]):
        """Map a file of ids. Raises OSError, CorpusError if it is empty, or ValueError if it is not
        whole."""
        self.counts = torch.tensor(counts[path.stem])  # [n_ids_in_text] how often each id occurs
        if not self.counts.sum():
            raise CorpusError(
                f"data.corpus: the text is too short: its {path.stem} part has no tokens"
            )
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._map.madvise(mmap.MADV_RANDOM)
        with warnings.catch_warnings():  # that the tensor must not be written to
            warnings.simplefilter("ignore", UserWarning)
            self.ids = torch.frombuffer(self._map, dtype=getattr(torch, dtype))
        if len(self.ids) != self.counts.sum():
            raise ValueError(f"{path} is not whole")

    device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, offsets: torch.Tensor) -> torch.Tensor:
        """The ids (int64) at `offsets` `[batch, seq_len]`, which are close to each other in each
        window. The disk reads all windows at the same time; their memory then goes back to the
        operating system."""
        size = self.ids.element_size()
        begins, ends = (
            offsets.amin(1) * size // mmap.PAGESIZE * mmap.PAGESIZE,
            (offsets.amax(1) + 1) * size,
        )
        for begin, length in zip(begins.tolist(), (ends - begins).tolist(), strict=True):
            self._map.madvise(mmap.MADV_WILLNEED, begin, length)
        found = self.ids[offsets].long()
        self._map.madvise(mmap.MADV_DONTNEED)
        return found


@dataclass(frozen=True)
class StoredText:
    """The files of a text, and what the survey found in them."""

    files: list[Surveyed] = field(repr=False)
    # of each file, ascending: that directly below the text's folder, or "." if it is in none
    folders: list[str]
    cache: Path
    announce: Callable[[str], None] = field(repr=False)

    @classmethod
    def open(cls, path: Path, cache: Path, announce: Callable[[str], None]) -> "StoredText":
        """List and survey the files of a text. Raises CorpusError."""
        sources = list_sources(path)
        cache = cache / "texts" / _short_hash(str(path))
        try:
            with (
                locked(cache / "lock", announce),
                shown("reading", sum(s.size for s in sources), "B") as n_bytes_read,
            ):
                files = survey(sources, cache / "files.jsonl", announce, n_bytes_read)
        except OSError as error:
            raise CorpusError(
                f"data.corpus: cannot prepare {str(path)!r} ({error.strerror or error})"
            ) from error
        first = {file.sha256: file for file in reversed(files)}
        if len(first) < len(files):
            announce(
                f"leaving out {len(files) - len(first):,} of {len(files):,} files, which are copies of others"
            )
        if n_copies := sum(file.n_copies for file in first.values()):
            announce(
                f"leaving out {n_copies:,} rows of Parquet files, which are copies of others in their file"
            )
        parts = {file.path: file.path.relative_to(path).parts for file in files}
        folders = {file: found[0] if len(found) > 1 else "." for file, found in parts.items()}
        kept = sorted((f for f in files if first[f.sha256] is f), key=lambda f: folders[f.path])
        return cls(kept, [folders[file.path] for file in kept], cache, announce)

    @cached_property
    def n_chars(self) -> int:
        return sum(file.n_chars for file in self.files)

    @cached_property
    def n_training(self) -> list[int]:
        """How many characters at the beginning of each file are for training."""
        return split(self.files, self.folders)

    @cached_property
    def folder_chars(self) -> dict[str, int]:
        """The number of training characters of each folder, in the order of the text."""
        found = dict.fromkeys(self.folders, 0)
        for folder, n in zip(self.folders, self.n_training, strict=True):
            found[folder] += n
        return found

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each character occurs in the whole text."""
        found = Counter[str]()
        for file in self.files:
            found.update(file.counts)
        return found

    @cached_property
    def sha256(self) -> str:
        """Identifies the text: the hash of a single plain file, or a hash of the files' hashes and
        of their split."""
        hashes = [file.sha256 for file in self.files]
        if len(hashes) == 1 and is_plain(self.files[0].path):
            return hashes[0]
        if len(hashes) > 1:
            hashes = [f"{one} {n}" for one, n in zip(hashes, self.n_training, strict=True)]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    @cached_property
    def samples(self) -> tuple[str, str]:
        """SAMPLE characters of the training and of the validation part, in pieces spread over it;
        or the whole part."""
        path = self.cache / f"samples-{VERSION}-{self.sha256[:16]}.json"
        try:
            training, validation = json.loads(read_bytes(path))
        except (OSError, ValueError):
            training, validation = self._sampled()
            with reporting_os_errors(self.announce, str(path)):
                write_json(path, [training, validation])
        return training, validation

    def _sampled(self) -> tuple[str, str]:
        n_training, offsets = sum(self.n_training), [0, 0]
        found: tuple[list[str], list[str]] = ([], [])
        wanted = [pieces(n_training), pieces(self.n_chars - n_training)]
        with shown("sampling", self.n_chars, " characters") as n_chars_done:
            for file, n in zip(self.files, self.n_training, strict=True):
                lengths = n, file.n_chars - n
                of_file = [
                    list(inside(*each)) for each in zip(wanted, offsets, lengths, strict=True)
                ]
                ranges = of_file[0] + [(n + begin, n + end) for begin, end in of_file[1]]
                for begin, text in read_ranges(file, file.n_chars, ranges) if ranges else ():
                    found[begin >= n].append(text)
                offsets = [offset + length for offset, length in zip(offsets, lengths, strict=True)]
                n_chars_done(file.n_chars)
        return "".join(found[0]), "".join(found[1])

    def tokenized(self, vocabulary: Vocabulary) -> "StoredTokens":
        """The token ids, converted first if they are not in the cache. Raises CorpusError."""
        # what decides the ids
        numbering = vocabulary.description() | {"special_tokens": vocabulary.unknown_token}
        folder = self.cache / _short_hash(json.dumps([self.sha256, numbering, VERSION]))
        n_bytes = sum(len(character.encode()) * n for character, n in self.counts.items())
        try:
            with locked(self.cache / "lock", self.announce):
                # not converted yet, or damaged
                with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                    return StoredTokens.open(folder)
                self.announce(
                    f"converting {n_bytes / 1e6:,.1f} MB of text to tokens, once, in {folder}"
                )
                with shown("converting", self.n_chars, " characters") as n_chars_done:
                    convert(self.files, vocabulary, self.n_training, folder, n_chars_done)
                return StoredTokens.open(folder)
        except OSError as error:
            reason = error.strerror or error
            raise CorpusError(
                f"data.corpus: cannot convert the text in {str(folder)!r} ({reason})"
            ) from error


@dataclass(frozen=True)
class StoredTokens:
    """Both parts of a text as token ids on the disk."""

    training: StoredIds
    validation: StoredIds
    # [n_documents] the number of training ids up to the end of each document
    documents: torch.Tensor
    document_chars: torch.Tensor  # [n_documents] the same in characters

    @classmethod
    def open(cls, folder: Path) -> "StoredTokens":
        """Map a finished conversion. Raises OSError, ValueError, LookupError or TypeError if it is
        not whole."""
        done = json.loads(read_bytes(folder / "done.json"))
        training, validation = (
            StoredIds(folder / name, done["dtype"], done["counts"])
            for name in (TRAINING, VALIDATION)
        )
        ends = torch.from_numpy(np.fromfile(folder / DOCUMENTS, dtype=np.int64).reshape(-1, 2))
        if not len(ends) or ends[-1, 0] != len(training):
            raise ValueError(f"{DOCUMENTS} is not whole")
        return cls(training, validation, *ends.T.contiguous())


def pieces(n_chars: int) -> deque[tuple[int, int]]:
    """The ranges of the sample in a text of `n_chars`."""
    if n_chars <= SAMPLE:
        return deque([(0, n_chars)])
    n = SAMPLE // PIECE
    return deque((i * n_chars // n, i * n_chars // n + PIECE) for i in range(n))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def shown(task: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on a terminal. Yields a function to call with what was done since its
    last call."""
    with tqdm(total=total, desc=task, unit=unit, unit_scale=True, disable=None, delay=0.5) as bar:
        yield bar.update
