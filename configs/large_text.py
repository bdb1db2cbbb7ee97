"""The training windows of a text that stays on the disk, after a check of the memory that its keys need."""

from typing import Any

import torch

from configs.keys import ConfigError
from data.documents import DocumentWindows
from data.pairs import pair_windows
from data.prefetch import Prefetched
from data.shuffled import ShuffledWindows
from data.sources import CorpusError
from data.windows import Windows

MEMORY = 500_000_000  # bytes that one key may need
BYTES_PER_CELL = 16  # of data.sampling=shuffled
BYTES_PER_STATIC_MASK = 12  # three draws of float32


def prefetched_windows(root: Any, seed: int, longest: int) -> Prefetched:
    """Windows of at most `longest` tokens; `root` is the config tree. Raises ConfigError or CorpusError."""
    c, objective = root.data, root.objective.pairs
    ids = c.stored_tokens.training
    _check_memory(root, len(ids))
    windows: Windows
    if objective:
        windows = pair_windows(objective, ids, c.loaded.training, c.vocabulary, seed, longest)
    elif c.within_documents:
        windows = DocumentWindows(ids, _documents(c, longest), seed=seed)
    else:
        windows = (ShuffledWindows if c.sampling == "shuffled" else Windows)(ids, seed=seed)
    return Prefetched(windows, root.torch_device)


def _check_memory(root: Any, n_tokens: int) -> None:
    n_cells = n_tokens // min(row["seq_len"] for row in root.training.stages)
    for key, is_set, n_bytes, instead in (
        ("data.sampling=shuffled", root.data.sampling == "shuffled", BYTES_PER_CELL * n_cells, "random"),
        ("masking.masks=static", root.masking.masks == "static", BYTES_PER_STATIC_MASK * n_tokens, "dynamic"),
    ):
        if is_set and n_bytes > MEMORY:
            raise ConfigError(f"{key} needs {n_bytes / 1e9:,.1f} GB of memory for this text: use {instead}")
    if root.objective.nsp and root.data.loaded.is_sample:
        raise ConfigError("objective.nsp needs all speeches in memory, and this text is too large for that: use sop")


def _documents(c: Any, longest: int) -> torch.Tensor:
    """The ends of the documents, of which one must hold the longest windows."""
    documents = c.stored_tokens.documents
    n_tokens = int(documents.diff(prepend=documents.new_zeros(1)).max())
    if n_tokens < longest:
        raise CorpusError(
            f"data.within_documents=true: the longest document has {n_tokens:,} {c.vocabulary.tokens}, too few for"
            f" windows of {longest:,}: shorten training.stages"
        )
    return documents
