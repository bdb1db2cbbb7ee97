"""A large text: it stays on the disk, as token ids in memory-mapped files that are converted once."""

import contextlib
import hashlib
import json
import mmap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from data.text.conversion import DOCUMENTS, TRAINING, VALIDATION, convert, parts_of
from data.text.sources import (
    CorpusError,
    Reading,
    is_one_text,
    is_plain,
    list_sources,
)
from data.text.survey import Surveyed, split, survey
from data.vocabulary import Vocabulary
from runs.files import locked, reporting_os_errors, write_json
from runs.reading import read_bytes

SAMPLE = (
    4_000_000  # characters of each part: the sample for strategies, BPE and counting
)
PIECE = 4_000  # characters of the sample that follow each other in the text
VERSION = 4  # of the conversion; a new version converts again


def path_of_large_text(name: str, in_memory: int, reading: Reading) -> Path | None:
    """The path of a text that stays on the disk: a folder, or a file that is compressed, has
    documents, or is above `in_memory` bytes. None for any other name.

    Raises CorpusError if a file is empty or no text."""
    try:
        path = Path(name).expanduser()
        is_large = path.is_file() and (
            path.stat().st_size > in_memory
            or not is_plain(path)
            or not is_one_text(path, reading)
        )
        return path.resolve() if is_large or (name and path.is_dir()) else None
    except (
        OSError,
        RuntimeError,
        UnicodeError,
    ):  # such a name fails again where the text is read
        return None


class StoredIds:
    """Token ids in a file, memory-mapped. Windows are read from it as from a tensor."""

    def __init__(self, path: Path, dtype: str, counts: Mapping[str, list[int]]):
        """Map a file of ids. Raises OSError, CorpusError if it is empty, or ValueError if it is not
        whole."""
        self.counts = torch.tensor(
            counts[path.stem]
        )  # [n_ids_in_text] how often each id occurs
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
        """The ids (int64) at `offsets` `[batch, seq_len]`, which are close to each other in each
        window.

        The disk reads all windows at the same time. The operating system then gets their memory
        back.
        """
        size = self.ids.element_size()
        begins = offsets.amin(1) * size // mmap.PAGESIZE * mmap.PAGESIZE
        lengths = (offsets.amax(1) + 1) * size - begins
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
            self._map.madvise(mmap.MADV_WILLNEED, begin, length)

        ids = self.ids[offsets].long()
        self._map.madvise(mmap.MADV_DONTNEED)
        return ids


@dataclass(frozen=True)
class StoredText:
    """The files of a text, and what the survey found in them."""

    files: list[Surveyed] = field(repr=False)
    # of each file, ascending: that directly below the text's folder, or "." if it is in none
    folders: list[str]
    reading: Reading
    cache: Path
    announce: Callable[[str], None] = field(repr=False)

    @classmethod
    def open(
        cls,
        path: Path,
        reading: Reading,
        cache: Path,
        announce: Callable[[str], None],
    ) -> "StoredText":
        """List and survey the files of a text. Raises CorpusError."""
        sources = list_sources(path, reading).sources
        cache = cache / "texts" / _short_hash(f"{path} {reading}")
        try:
            with (
                locked(cache / "lock", announce),
                shown("reading", sum(source.size for source in sources), "B") as bar,
            ):
                files = survey(
                    sources, reading, cache / "files.jsonl", announce, bar.update
                )
        except OSError as error:
            raise CorpusError(
                f"data.corpus: cannot prepare {str(path)!r} ({error.strerror or error})"
            ) from error

        first = {file.sha256: file for file in reversed(files)}
        n_left_out = len(files) - len(first)
        if n_left_out:
            announce(
                f"leaving out {n_left_out:,} of {len(files):,} files, which are copies of others"
            )

        def folder_of(file: Surveyed) -> str:
            folder, *rest = file.path.relative_to(path).parts or "."
            return folder if rest else "."

        kept = sorted(
            (file for file in files if first[file.sha256] is file), key=folder_of
        )
        return cls(kept, list(map(folder_of, kept)), reading, cache, announce)

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
        n_chars = dict.fromkeys(self.folders, 0)
        for folder, n in zip(self.folders, self.n_training, strict=True):
            n_chars[folder] += n

        return n_chars

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each character occurs in the whole text."""
        counts = Counter[str]()
        for file in self.files:
            counts.update(file.counts)

        return counts

    @cached_property
    def sha256(self) -> str:
        """Identifies the text: the hash of a single plain file, or a hash of the files' hashes and
        of their split."""
        hashes = [file.sha256 for file in self.files]
        if len(hashes) == 1 and is_plain(self.files[0].path):
            return hashes[0]
        if len(hashes) > 1:
            hashes = [
                f"{one} {n}" for one, n in zip(hashes, self.n_training, strict=True)
            ]

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
        n_training = sum(self.n_training)
        ranges = {
            TRAINING: pieces(n_training),
            VALIDATION: pieces(self.n_chars - n_training),
        }
        offsets = dict.fromkeys(ranges, 0)
        texts: dict[str, list[str]] = {part: [] for part in ranges}
        with shown("sampling", self.n_chars, " characters") as bar:
            for part, block in parts_of(self.files, self.reading, self.n_training):
                texts[part] += inside(ranges[part], offsets[part], block.text)
                offsets[part] += len(block.text)
                bar.update(len(block.text))

        return "".join(texts[TRAINING]), "".join(texts[VALIDATION])

    def tokenized(self, vocabulary: Vocabulary) -> "StoredTokens":
        """The token ids, converted first if they are not in the cache. Raises CorpusError."""
        # what decides the ids
        numbering = vocabulary.description() | {
            "special_tokens": vocabulary.unknown_token
        }
        folder = self.cache / _short_hash(json.dumps([self.sha256, numbering, VERSION]))
        try:
            with locked(self.cache / "lock", self.announce):
                # not converted yet, or damaged
                with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                    return StoredTokens.open(folder)
                self.announce(
                    f"converting {self.n_chars:,} characters of text to tokens, once, in {folder}"
                )
                with shown("converting", self.n_chars, " characters") as bar:
                    convert(
                        self.files,
                        self.reading,
                        vocabulary,
                        self.n_training,
                        folder,
                        bar.update,
                    )
                return StoredTokens.open(folder)
        except OSError as error:
            raise CorpusError(
                f"data.corpus: cannot convert the text in {str(folder)!r} ({error.strerror or error})"
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
        ends = torch.from_numpy(
            np.fromfile(folder / DOCUMENTS, dtype=np.int64).reshape(-1, 2)
        )
        if not len(ends) or ends[-1, 0] != len(training):
            raise ValueError(f"{DOCUMENTS} is not whole")

        return cls(training, validation, *ends.T.contiguous())


def pieces(n_chars: int) -> list[range]:
    """The ranges of the sample in a text of `n_chars`."""
    if n_chars <= SAMPLE:
        return [range(n_chars)]

    n = SAMPLE // PIECE
    begins = [i * n_chars // n for i in range(n)]
    return [range(begin, begin + PIECE) for begin in begins]


def inside(ranges: list[range], offset: int, text: str) -> list[str]:
    """The parts of a text, which begins at `offset`, that lie in ranges."""
    texts = []
    for piece in ranges:
        if piece.start < offset + len(text) and offset < piece.stop:
            texts.append(text[max(piece.start - offset, 0) : piece.stop - offset])

    return texts


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shown(task: str, total: int, unit: str) -> tqdm:
    """A progress bar on a terminal."""
    return tqdm(
        total=total, desc=task, unit=unit, unit_scale=True, disable=None, delay=0.5
    )
