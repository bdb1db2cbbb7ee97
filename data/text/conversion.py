"""Converts a text in its normal form to token ids on the disk: once, on all cores, and from where it
stopped if killed.

The folder of a conversion holds `training.ids` and `validation.ids`, arrays of the smallest integer
type; `training.ends` and `validation.ends`, the ends of their documents in ids, int64; and, when all
is done, `done.json`, with the type and how often each id occurs.
"""

from collections.abc import Callable
from itertools import pairwise, starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from data.text.growing import growing_files
from data.text.normal_form import NormalForm
from data.text.parallel import parallel_map
from data.text.split import LEFT_OUT, TRAINING, VALIDATION, Split
from data.tokens import BYTES, CHARACTERS
from data.vocabulary import Vocabulary
from runs.files import write_json

CHUNK = 250_000  # bytes of the text that are converted at once
COUNTED_AT_ONCE = 1_000_000  # tokens
DONE = "done.json"
# tokens whose ids in any text are as many as its characters or bytes
UNITS = {CHARACTERS: "n_chars", BYTES: "n_bytes"}
PARTS = {"training": TRAINING, "validation": VALIDATION}


class Converted(NamedTuple):
    """Part of a chunk."""

    ids: np.ndarray  # [n_ids]
    ends: np.ndarray  # [n_ends] the number of ids up to the end of each document


def convert(
    normal: NormalForm,
    split: Split,
    vocabulary: Vocabulary,
    separator: int | None,
    folder: Path,
    n_bytes_done: Callable[[int], None] = lambda n: None,
) -> None:
    """Write the token ids of a text into `folder`; goes on where an earlier call stopped.

    `separator` is the id that follows each document. `n_bytes_done` is called with the number of
    bytes of the text that have been converted since its last call. Raises CorpusError or OSError.
    """
    largest = max(vocabulary.n_ids_in_text - 1, separator or 0)
    dtype = np.min_scalar_type(largest)

    def converted(chunk: range) -> dict[str, Converted]:
        return parts_of(normal, split, chunk, vocabulary, separator, dtype)

    names = []
    for name in PARTS:
        names += [f"{name}.ids", f"{name}.ends"]
    with growing_files(folder, names, key="") as output:
        n_done = output.state.get("chunks", 0)
        all_chunks = chunks(split)
        ends = split.begins + split.n_bytes
        n_bytes_done(int(ends[all_chunks[n_done - 1][-1]]) if n_done else 0)
        left = all_chunks[n_done:]
        for chunk, parts in zip(left, parallel_map(converted, left), strict=True):
            for name, part in parts.items():
                file = output.files[f"{name}.ids"]
                n_before = file.tell() // dtype.itemsize
                file.write(part.ids.data)
                output.files[f"{name}.ends"].write((part.ends + n_before).data)
            n_bytes_done(int(ends[chunk[-1]] - split.begins[chunk[0]]))
            n_done += 1
            if output.is_time_to_note():
                output.note({"chunks": n_done})
        output.note({"chunks": n_done})

    counts = {name: counts_of(folder / f"{name}.ids", dtype, largest) for name in PARTS}
    write_json(folder / DONE, {"dtype": dtype.name, "counts": counts})


def chunks(split: Split) -> list[range]:
    """The numbers of the pieces of each chunk."""
    n = len(split.begins)
    total = int(split.n_bytes.sum(dtype=np.int64))
    borders = np.searchsorted(split.begins, range(0, total, CHUNK))
    return list(starmap(range, pairwise(np.unique([*borders, n]).tolist())))


def parts_of(
    normal: NormalForm,
    split: Split,
    numbers: range,
    vocabulary: Vocabulary,
    separator: int | None,
    dtype: np.dtype,
) -> dict[str, Converted]:
    """The ids of consecutive pieces, for each part of the split."""
    chunk = slice(numbers.start, numbers.stop)
    begin = int(split.begins[numbers.start])
    text = normal.read(begin, int(split.n_bytes[chunk].sum())).decode()
    part = split.part[chunk]
    is_end = split.is_end[chunk]
    kept = np.flatnonzero(part != LEFT_OUT)
    unit = UNITS.get(vocabulary.tokens)
    if unit:
        if len(kept) < len(part):
            text = "".join(texts_of(text, split.n_chars[chunk], kept))
        n_ids = getattr(split, unit)[chunk][kept].astype(np.int64)
        ids = vocabulary.encode(text).numpy().astype(dtype)
    else:
        texts = texts_of(text, split.n_chars[chunk], kept)
        encoded = vocabulary.encode_batch(texts)
        n_ids = np.fromiter(map(len, encoded), np.int64, len(encoded))
        encoded.append(torch.empty(0, dtype=torch.int64))
        ids = torch.cat(encoded).numpy().astype(dtype)

    part = part[kept]
    is_end = is_end[kept]
    if separator is not None:
        ids = np.insert(ids, n_ids.cumsum()[is_end], separator)
        n_ids += is_end

    parts = {}
    part_of_id = part.repeat(n_ids)
    for name, number in PARTS.items():
        of_part = part == number
        ends = n_ids[of_part].cumsum()[is_end[of_part]]
        ids_of_part = ids if of_part.all() else ids[part_of_id == number]
        parts[name] = Converted(ids_of_part, ends)
    return parts


def texts_of(text: str, n_chars: np.ndarray, kept: np.ndarray) -> list[str]:
    """The texts of the pieces `kept` among those of `text`."""
    ends = n_chars.cumsum()
    begins = ends - n_chars
    texts = []
    for begin, end in zip(begins[kept].tolist(), ends[kept].tolist(), strict=True):
        texts.append(text[begin:end])
    return texts


def counts_of(path: Path, dtype: np.dtype, largest: int) -> list[int]:
    """How often each id up to `largest` occurs in a file."""

    def counted(offset: int) -> np.ndarray:
        ids = np.fromfile(path, dtype, COUNTED_AT_ONCE, offset=offset)
        return np.bincount(ids, minlength=largest + 1)

    offsets = range(0, path.stat().st_size, COUNTED_AT_ONCE * dtype.itemsize)
    counts = sum(parallel_map(counted, offsets), np.zeros(largest + 1, dtype=np.int64))
    return counts.tolist()
