"""A large text: it stays on the disk, as token ids in memory-mapped files that are converted once."""

import contextlib
import hashlib
import json
import mmap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from data.text.conversion import DONE, PARTS, convert
from data.text.normal_form import NormalForm, Read, normalize
from data.text.sources import CorpusError, Listing, Reading, Source, read_blocks
from data.text.split import TRAINING, Split, split
from data.vocabulary import SEP, Vocabulary
from runs.files import locked, reporting_os_errors, write_json
from runs.reading import read_bytes

# characters of each part: the sample for strategies, BPE and counting
SAMPLE = 4_000_000
PIECE = 4_000  # characters of the sample that follow each other in the text
VERSION = 7  # of all of this; a new version reads and converts again


class StoredIds:
    """Token ids in a file, memory-mapped. Windows are read from it as from a tensor."""

    def __init__(self, path: Path, dtype: str, counts: Sequence[int]):
        """Map a file of ids; `counts` says how often each occurs. Raises OSError, CorpusError if it
        is empty, or ValueError if it is not whole."""
        self.counts = torch.tensor(counts)
        if not self.counts.sum():
            raise CorpusError(
                f"data.corpus: the text is too short: its {path.stem} part has no tokens"
            )

        with open(path, "rb") as file:
            # private pages, because PyTorch warns of a buffer that it must not write to
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

        self._map.madvise(mmap.MADV_RANDOM)
        self.ids = torch.frombuffer(self._map, dtype=getattr(torch, dtype))
        if len(self.ids) != self.counts.sum():
            raise ValueError(f"{path} is not whole")

    device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, offsets: torch.Tensor) -> torch.Tensor:
        """The ids (int64) at `offsets` of any shape, which are neighbors for the most part.

        The disk reads all pieces at the same time. The operating system then gets their memory
        back.
        """
        flat = offsets.flatten()
        is_begin = torch.ones(len(flat), dtype=torch.bool)
        is_begin[1:] = flat.diff() != 1
        columns = is_begin.nonzero().flatten()
        n_in_piece = columns.diff(append=columns.new_tensor([len(flat)]))
        size = self.ids.element_size()
        exact_begins = flat[columns] * size
        begins = exact_begins // mmap.PAGESIZE * mmap.PAGESIZE
        lengths = exact_begins + n_in_piece * size - begins
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
            self._map.madvise(mmap.MADV_WILLNEED, begin, length)

        ids = self.ids[offsets].long()
        self._map.madvise(mmap.MADV_DONTNEED)
        return ids


@dataclass(frozen=True)
class StoredText:
    """A text in its normal form on the disk, and how it is split."""

    normal: NormalForm = field(repr=False)
    # that each source is in: directly below the text's folder, or "." if it is in none; ascending.
    # None: the source is for validation
    folder_of_source: list[str | None] = field(repr=False)
    has_documents: bool  # or it is one text
    cache: Path
    announce: Callable[[str], None] = field(repr=False)
    # files that cannot be used, and why
    left_out: Mapping[Path, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls,
        listing: Listing,
        reading: Reading,
        cache: Path,
        announce: Callable[[str], None],
        validation: Listing | None = None,
    ) -> "StoredText":
        """Read the files of a text, and of one for its validation. Raises CorpusError."""
        path = listing.path
        sources = sorted(listing.sources, key=lambda source: folder_of(source, path))
        folders: list[str | None] = [folder_of(source, path) for source in sources]
        has_documents = not listing.is_one_text(reading)
        n_bytes = listing.n_bytes
        validation_path = None
        if validation:
            validation_path = validation.path
            sources += validation.sources
            folders += [None] * len(validation.sources)
            has_documents = has_documents or not validation.is_one_text(reading)
            n_bytes += validation.n_bytes

        files = "1 file" if len(sources) == 1 else f"{len(sources):,} files"
        text = cls.read(
            lambda number: read_blocks(sources[number], reading),
            folders,
            has_documents,
            cls.cache_of(path, reading, validation_path, cache),
            short_hash(json.dumps([VERSION, *map(vars, sources)], default=str)),
            f"{files} ({n_bytes / 1e6:,.1f} MB)",
            announce,
        )
        left_out = dict(listing.left_out)
        for number, reason in text.normal.left_out.items():
            left_out[sources[int(number)].path] = reason
        return replace(text, left_out=left_out)

    @staticmethod
    def cache_of(
        path: Path, reading: Reading, validation: Path | None, cache: Path
    ) -> Path:
        """The folder of a text in a cache."""
        return cache / "texts" / short_hash(f"{path} {reading} {validation}")

    @classmethod
    def read(
        cls,
        read: Read,
        folder_of_source: list[str | None],
        has_documents: bool,
        cache: Path,
        key: str,
        name: str,
        announce: Callable[[str], None],
    ) -> "StoredText":
        """The text of sources, from the cache if they have been read with the same `key`. Raises
        CorpusError."""
        folder = cache / "normal"
        n = len(folder_of_source)
        with locked_cache(cache, announce):
            normal = NormalForm.of_finished(folder, key, n)
            if normal is None:
                announce(f"reading {name}")
                with shown("reading") as bar:
                    normal = normalize(read, n, folder, key, has_documents, bar.update)
            if not normal.counts:
                reasons = "".join(f": one {each}" for each in normal.left_out.values())
                raise CorpusError(f"data.corpus: no text in {name}{reasons}")
            # they stay as they are if another process reads a changed text
            _ = normal.file, normal.pieces
        return cls(normal, folder_of_source, has_documents, cache, announce)

    def __reduce__(self) -> tuple[Any, ...]:
        # without what is computed from them
        return StoredText, tuple(getattr(self, each.name) for each in fields(self))

    @cached_property
    def folders(self) -> list[str]:
        """The names of the folders, in the order of the text."""
        return [
            name for name in dict.fromkeys(self.folder_of_source) if name is not None
        ]

    @cached_property
    def split(self) -> Split:
        n = len(self.folders)
        numbers: dict[str | None, int] = {None: n}
        numbers.update(zip(self.folders, range(n), strict=True))
        folder_of_source = np.array([numbers[name] for name in self.folder_of_source])
        return split(self.normal, folder_of_source, n, self.has_documents)

    @property
    def n_training(self) -> int:
        """The number of characters for training."""
        return self.split.n_chars_of(TRAINING)

    @property
    def contents(self) -> str:
        """The size of both parts, in words."""
        parts = []
        for name, part in PARTS.items():
            n = int((self.split.is_end & (self.split.part == part)).sum())
            n_chars = self.split.n_chars_of(part)
            parts.append(f"{n:,} documents ({n_chars:,} characters) for {name}")
        return " and ".join(parts)

    @property
    def counts(self) -> Counter[str]:
        """How often each character occurs in the whole text."""
        counts = self.normal.counts.copy()
        if self.has_documents:
            counts["\n"] += 1  # of the samples
        return counts

    @cached_property
    def sha256(self) -> str:
        """Identifies the text: the hash of one text, or a hash of the documents and of their
        split."""
        if self.has_documents:
            return hashlib.sha256(self.split.key).hexdigest()
        if len(self.normal.sha256) == 1:
            return self.normal.sha256[0]
        return hashlib.sha256(" ".join(self.normal.sha256).encode()).hexdigest()

    @cached_property
    def samples(self) -> tuple[str, str]:
        """SAMPLE characters of the training and of the validation part, in pieces spread over it;
        or the whole part. Documents are in lines of their own."""
        between = "\n" if self.has_documents else ""
        training, validation = self.kept(
            "samples",
            lambda: [between.join(self.sample_of(part)) for part in PARTS.values()],
        )
        return training, validation

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """A result in JSON, from the cache or computed now."""
        path = self.cache / f"{name}-{VERSION}-{self.sha256[:16]}.json"
        try:
            return json.loads(read_bytes(path))
        except (OSError, ValueError):
            result = compute()
            with reporting_os_errors(self.announce, str(path)):
                write_json(path, result)
            return result

    def sample_of(self, part: int) -> list[str]:
        """The documents, or parts of them, in the sample of a part of the split."""
        numbers = np.flatnonzero(self.split.part == part)
        ends = self.split.n_chars[numbers].cumsum(dtype=np.int64)
        begins = ends - self.split.n_chars[numbers]
        texts = []
        for wanted in pieces(int(ends[-1])) if len(ends) else []:
            first = np.searchsorted(ends, wanted.start, "right")
            last = np.searchsorted(begins, wanted.stop)
            for i in range(first, last):
                begin = max(wanted.start - int(begins[i]), 0)
                text = self.piece(numbers[i], begin, wanted.stop - int(begins[i]))
                texts.append(text)
        return texts

    def piece(self, number: int, first: int = 0, last: int | None = None) -> str:
        """The text of a piece of the split, from its character `first` to `last`."""
        begin = int(self.split.begins[number])
        n_bytes = int(self.split.n_bytes[number])
        return self.normal.read(begin, n_bytes).decode()[first:last]

    def tokenized(self, vocabulary: Vocabulary) -> "StoredTokens":
        """The token ids, converted first if they are not in the cache. Raises CorpusError."""
        separator = vocabulary.id_of(SEP) if self.has_documents else None
        # what decides the ids
        numbering = vocabulary.description() | {
            "special_tokens": [vocabulary.unknown_token, separator]
        }
        folder = self.cache / short_hash(json.dumps([self.sha256, numbering, VERSION]))
        n_bytes = int(self.split.n_bytes.sum(dtype=np.int64))
        with locked_cache(self.cache, self.announce):
            # not converted yet, or damaged
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                return StoredTokens.open(folder, self.split.folders)
            self.announce(
                f"converting {n_bytes / 1e6:,.1f} MB of text to tokens, once, in {folder}"
            )
            with shown("converting", n_bytes) as bar:
                convert(
                    self.normal, self.split, vocabulary, separator, folder, bar.update
                )
            return StoredTokens.open(folder, self.split.folders)


@contextlib.contextmanager
def locked_cache(cache: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Prepares a text in its cache, alone. Turns OSErrors into CorpusErrors."""
    try:
        with locked(cache / "lock", announce):
            yield
    except OSError as error:
        raise CorpusError(
            f"data.corpus: cannot prepare the text in {str(cache)!r} ({error.strerror or error})"
        ) from error


def folder_of(source: Source, path: Path) -> str:
    """The folder directly below `path` that has a file, or "." if it is in none."""
    folder, *rest = source.path.relative_to(path).parts or "."
    return folder if rest else "."


@dataclass(frozen=True)
class StoredTokens:
    """Both parts of a text as token ids on the disk. In a text of documents, `[SEP]` follows each
    of them."""

    training: StoredIds
    validation: StoredIds
    # [n_documents] the number of training ids up to the end of each document, its [SEP] included
    documents: torch.Tensor
    validation_documents: torch.Tensor  # [n_documents] the same of the validation ids
    folders: torch.Tensor  # [n_folders] training documents up to the end of each folder

    @classmethod
    def open(cls, folder: Path, folders: np.ndarray) -> "StoredTokens":
        """Map a finished conversion. Raises OSError, ValueError, LookupError or TypeError if it is
        not whole."""
        done = json.loads(read_bytes(folder / DONE))
        ids = []
        ends = []
        for name in PARTS:
            counts = done["counts"][name]
            ids.append(StoredIds(folder / f"{name}.ids", done["dtype"], counts))
            ends.append(
                torch.from_numpy(np.fromfile(folder / f"{name}.ends", np.int64))
            )
            if not len(ends[-1]) or ends[-1][-1] != len(ids[-1]):
                raise ValueError(f"{name}.ends is not whole")

        return cls(ids[0], ids[1], ends[0], ends[1], torch.from_numpy(folders))


def pieces(n_chars: int) -> list[range]:
    """The ranges of the sample in a text of `n_chars`."""
    if n_chars <= SAMPLE:
        return [range(n_chars)]

    n = SAMPLE // PIECE
    begins = [i * n_chars // n for i in range(n)]
    return [range(begin, begin + PIECE) for begin in begins]


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shown(task: str, n_bytes: int | None = None) -> tqdm:
    """A progress bar on a terminal."""
    return tqdm(
        total=n_bytes, desc=task, unit="B", unit_scale=True, disable=None, delay=0.5
    )
