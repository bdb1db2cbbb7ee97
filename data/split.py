"""The split of a text into training and validation."""

from collections.abc import Sequence
from itertools import groupby

from data.survey import Surveyed


def split(files: Sequence[Surveyed], folders: Sequence[str]) -> list[int]:
    """How many characters at the beginning of each file are for training; the others are for validation.

    Each folder is split by itself. The last tenth of a single file is for validation. Of several files, the last tenth
    in the order of their hashes is: whole files, except that one with more than a tenth of its folder is cut. `folders`
    are those of the files, ascending.
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
