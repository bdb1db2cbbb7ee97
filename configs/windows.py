"""The training windows that the keys ask for."""

from typing import Any

import torch
from torch.nn.functional import pad

from configs.keys import ConfigError
from data.text.sources import CorpusError
from data.text.stored import StoredIds
from data.windows import Windows
from data.windows.documents import DocumentWindows
from data.windows.pairs import PairWindows
from data.windows.prefetch import Prefetched
from data.windows.shuffled import ShuffledWindows

MEMORY = 500_000_000  # bytes that one key may need
BYTES_PER_CELL = 16  # of data.sampling=shuffled
BYTES_PER_STATIC_MASK = 12  # three draws of float32


def windows_of(root: Any, longest: int, seed: int) -> Windows | Prefetched:
    """The windows of a run, of at most `longest` tokens; `root` is the config tree. A thread draws
    those of a text on the disk, if that saves time."""
    c = root.data
    if not c.stored_tokens:
        return _windows_of(root, c.training_ids, longest, seed)
    check_large_text(root, longest)
    windows = _windows_of(root, c.stored_tokens.training, longest, seed)
    return Prefetched(
        windows, root.torch_device, in_thread=root.torch_device.type != "cpu"
    )


def _windows_of(
    root: Any, ids: torch.Tensor | StoredIds, longest: int, seed: int
) -> Windows:
    c = root.data
    if root.objective.pairs:
        return PairWindows(
            root.objective.pairs, ids, c.loaded.training, c.vocabulary, seed, longest
        )
    if c.weights:
        return weighted_windows(c, longest, seed)
    if c.stored_tokens and c.within_documents:
        return DocumentWindows(ids, c.stored_tokens.documents, seed=seed)
    if c.sampling == "shuffled":
        return ShuffledWindows(ids, seed=seed)
    return Windows(ids, seed=seed)


def weighted_windows(c: Any, longest: int, seed: int) -> Windows:
    """Windows of all folders of a text in the proportions of `data.weights`; `c` is the branch of
    the config tree."""
    tokens = c.stored_tokens
    names = c.loaded.stored.folders if tokens else []
    weights: dict[str, float] = {}
    for row in c.weights:
        weights |= {str(folder): weight for folder, weight in row.items()}
    if weights.keys() != set(names) or not names:
        folders = ", ".join(f"{name!r}" for name in names[:10])
        raise ConfigError(
            f"data.weights must name each folder of {c.loaded.name!r} once: it has"
            f" {folders or 'one file and no folders'} (in YAML, quote names such as"
            ' "01" and "no")'
        )
    folders = tokens.folders
    documents = tokens.documents
    # a window may cross the borders of documents, but not those of folders
    if not c.within_documents:
        documents = pad(documents, (1, 0))[folders]
        folders = torch.arange(len(folders)) + 1
    shares = torch.tensor([weights[folder] for folder in names], dtype=torch.float64)
    windows = DocumentWindows(tokens.training, documents, folders, shares, seed=seed)
    n_starts = windows.up_to_folders(windows.n_starts(longest)).diff(
        prepend=folders.new_zeros(1)
    )
    for folder, weight, n in zip(
        names, shares.tolist(), n_starts.tolist(), strict=True
    ):
        if weight and not n:
            raise CorpusError(
                f"data.weights: no training text of {folder!r} has {longest:,} tokens: give it weight 0"
            )
    return windows


def check_large_text(root: Any, longest: int) -> None:
    """Raise ConfigError or CorpusError if the keys do not suit the text; `root` is the config tree.

    They must not need much memory, and if they ask for documents, one must hold the longest
    windows.
    """
    c, n_tokens = root.data, len(root.data.training_ids)
    n_cells = n_tokens // min(row["seq_len"] for row in root.training.stages)
    for key, is_set, n_bytes, instead in (
        (
            "data.sampling=shuffled",
            c.sampling == "shuffled",
            BYTES_PER_CELL * n_cells,
            "random",
        ),
        (
            "masking.masks=static",
            root.masking.masks == "static",
            BYTES_PER_STATIC_MASK * n_tokens,
            "dynamic",
        ),
    ):
        if is_set and n_bytes > MEMORY:
            raise ConfigError(
                f"{key} needs {n_bytes / 1e9:,.1f} GB of memory for this text: use {instead}"
            )
    if root.objective.nsp and c.loaded.is_sample:
        raise ConfigError(
            "objective.nsp needs all speeches in memory, and this text is too large for that: use sop"
        )
    if c.within_documents:
        documents = c.stored_tokens.documents
        n_in_longest = int(documents.diff(prepend=documents.new_zeros(1)).max())
        if n_in_longest < longest:
            raise CorpusError(
                f"data.within_documents=true: the longest document has {n_in_longest:,} {c.vocabulary.tokens}, too few"
                f" for windows of {longest:,}: shorten training.stages"
            )
