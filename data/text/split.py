"""Which documents are for training and which for validation, and which are left out as copies."""

from dataclasses import dataclass, field

import numpy as np

from data.text.normal_form import NormalForm

TRAINING, VALIDATION, LEFT_OUT = range(3)
SHARES = (0.05, 0.2)  # of a folder, for validation, if its documents stay whole


@dataclass
class Split:
    """The pieces of a text, in its order, each with its part of the split."""

    begins: np.ndarray  # [n_pieces] the offset of each in the bytes of the text
    n_bytes: np.ndarray  # [n_pieces]
    n_chars: np.ndarray  # [n_pieces]
    is_end: np.ndarray  # [n_pieces] whether it ends its document
    part: np.ndarray  # [n_pieces] TRAINING, VALIDATION or LEFT_OUT
    n_copies: int  # documents that are left out
    # of them, copies in data.corpus of documents in data.validation
    n_of_validation: int
    folders: np.ndarray  # [n_folders] training documents up to the end of each
    # folders with a document in both parts
    cut: list[int] = field(default_factory=list)
    key: bytes = b""  # which documents are in which part

    def n_chars_of(self, part: int) -> int:
        return int(self.n_chars[self.part == part].sum())


def split(
    normal: NormalForm,
    folder_of_source: np.ndarray,
    n_folders: int,
    has_documents: bool,
) -> Split:
    """Split each folder by itself.

    A document stays whole: sorted by their hashes, the last tenth of the documents, by characters,
    is for validation. If no border between documents leaves a share in SHARES, the document at nine
    tenths is cut. `folder_of_source` `[n_sources]` is ascending; the number `n_folders` stands for
    sources that are all for validation, and then all others are for training.
    """
    pieces = normal.pieces
    last = np.flatnonzero(pieces["is_end"])
    first = np.concatenate([[0], last[:-1] + 1])
    n_chars = np.add.reduceat(pieces["n_chars"], first, dtype=np.int64)
    hashes = pieces["hash"][last]
    folder = folder_of_source[pieces["source"][last]]
    part = np.full(len(last), TRAINING, np.uint8)
    has_own_validation = folder_of_source[-1] == n_folders
    if has_own_validation:
        part[folder == n_folders] = VALIDATION
    n_of_validation = 0
    if has_documents:
        of_validation = hashes[part == VALIDATION]
        n_of_validation = int(np.isin(hashes[part == TRAINING], of_validation).sum())
        part[is_copy(hashes, part)] = LEFT_OUT

    cuts = {}  # the number of training characters of documents that are cut
    for number in range(0 if has_own_validation else n_folders):
        begin, end = np.searchsorted(folder, [number, number + 1])
        of_folder = begin + np.flatnonzero(part[begin:end] != LEFT_OUT)
        in_order = of_folder[hashes[of_folder].argsort()]
        n_whole, n_of_cut = border(n_chars[in_order])
        part[in_order[n_whole:]] = VALIDATION
        if n_of_cut:
            cuts[int(in_order[n_whole])] = n_of_cut

    kept = part != LEFT_OUT
    is_new = part == TRAINING
    is_new[list(cuts)] = True
    up_to = np.searchsorted(folder, range(n_folders), side="right")
    whole = Split(
        begins=np.cumsum(pieces["n_bytes"], dtype=np.int64) - pieces["n_bytes"],
        n_bytes=pieces["n_bytes"].copy(),
        n_chars=pieces["n_chars"].copy(),
        is_end=pieces["is_end"].copy(),
        part=part.repeat(last - first + 1),
        n_copies=int((part == LEFT_OUT).sum()),
        n_of_validation=n_of_validation,
        folders=np.concatenate([[0], is_new.cumsum()])[up_to],
        cut=[int(folder[document]) for document in cuts],
        key=hashes[kept].tobytes()
        + part[kept].tobytes()
        + repr(cuts.values()).encode(),
    )
    for document in sorted(cuts, reverse=True):
        cut(whole, normal, int(first[document]), int(last[document]), cuts[document])
    return whole


def is_copy(hashes: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Whether each document, `[n_documents]`, is a copy of another one that stays: the first of the
    validation documents, or the first of all."""
    order = np.lexsort([part != VALIDATION, hashes])  # it keeps the order of equal ones
    copy = np.zeros(len(hashes), np.bool_)
    copy[order[1:]] = np.diff(hashes[order]) == 0
    return copy


def border(n_chars: np.ndarray) -> tuple[int, int]:
    """How many documents of a folder are for training, and how many characters of the next one, if
    it is cut; else 0. `n_chars` `[n_documents]` are in order of the hashes."""
    ends = np.concatenate([[0], n_chars.cumsum()])
    total = int(ends[-1])
    left = int(total * 0.9)
    n_whole = int(np.abs(ends - left).argmin())
    share = 1 - ends[n_whole] / max(total, 1)
    if SHARES[0] <= share <= SHARES[1]:
        return n_whole, 0
    n_whole = int(np.searchsorted(ends, left, side="right")) - 1
    return n_whole, left - int(ends[n_whole])


def cut(whole: Split, normal: NormalForm, first: int, last: int, n: int) -> None:
    """Give the first `n` characters of a document, whose pieces are `first` to `last`, to training,
    the others to validation."""
    ends = whole.n_chars[first : last + 1].cumsum(dtype=np.int64)
    piece = first + int(np.searchsorted(ends, n))
    n_chars = int(whole.n_chars[piece])
    n_in_piece = n - int(ends[piece - first]) + n_chars
    begin = int(whole.begins[piece])
    content = normal.read(begin, int(whole.n_bytes[piece]))
    n_bytes = len(content.decode()[:n_in_piece].encode())

    whole.part[first : piece + 1] = TRAINING
    whole.part[piece + 1 : last + 1] = VALIDATION
    is_last = bool(whole.is_end[piece])
    whole.is_end[piece] = True
    if n_bytes == len(content):
        return

    whole.n_bytes[piece] = n_bytes
    whole.n_chars[piece] = n_in_piece
    rest = {
        "begins": begin + n_bytes,
        "n_bytes": len(content) - n_bytes,
        "n_chars": n_chars - n_in_piece,
        "is_end": is_last,
        "part": VALIDATION,
    }
    for name, value in rest.items():
        setattr(whole, name, np.insert(getattr(whole, name), piece + 1, value))
