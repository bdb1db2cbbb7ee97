"""The training windows that the keys ask for."""

from inspect import signature
from typing import Any

import torch
from torch.nn.functional import pad

from configs.keys import ConfigError
from data.text.sources import CorpusError
from data.text.stored import StoredIds, StoredTokens
from data.windows import Windows
from data.windows.packed import PackedWindows
from data.windows.pairs import PairWindows
from data.windows.prefetch import Prefetched
from data.windows.ranges import FolderWindows
from data.windows.shuffled import ShuffledWindows
from model.documents import can_mix_within

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
    if c.is_packed or c.weights:
        return document_windows(c, ids, longest, seed)
    if c.sampling == "shuffled":
        return ShuffledWindows(ids, seed=seed)
    return Windows(ids, seed=seed)


def document_windows(
    c: Any, ids: torch.Tensor | StoredIds, longest: int, seed: int
) -> Windows:
    """Packed windows, or windows of folders; `c` is the branch `data` of the config tree."""
    shares = shares_of_folders(c) if c.weights else None
    tokens = c.stored_tokens
    windows: PackedWindows | FolderWindows
    if c.is_packed:
        windows = PackedWindows(
            ids,
            tokens.documents,
            tokens.folders,
            shares,
            padding_token=c.vocabulary.padding_token,
            seed=seed,
            gives_begins=mixes_within(c.root()),
        )
    else:
        windows = FolderWindows(ids, ends_of_folders(tokens), shares, seed=seed)

    if shares is None:
        return windows
    n_places = windows.ranges(longest).n_places.tolist()
    names = c.loaded.stored.folders
    for name, share, n in zip(names, shares.tolist(), n_places, strict=True):
        if share and not n:
            raise CorpusError(
                f"data.weights: the training text of {name!r} is too short for windows of"
                f" {longest:,} tokens: give it weight 0"
            )
    return windows


def mixes_within(root: Any) -> bool:
    """Whether attention can read where documents begin, which is faster than a mask; `root` is the
    config tree."""
    network = root.network
    for module in (network, getattr(network, "encoder", network)):
        if "begins" not in signature(module.forward).parameters:
            return False
    if root.model.dropout or not root.training.autocast:
        return False
    n_heads = root.model.n_heads
    return can_mix_within(n_heads, root.model.d_model // n_heads, root.torch_device)


def ends_of_folders(tokens: StoredTokens) -> torch.Tensor:
    """The ascending offsets at which the folders of the training text end, `[n_folders]`."""
    return pad(tokens.documents, (1, 0))[tokens.folders]


def shares_of_folders(c: Any) -> torch.Tensor:
    """The keys `data.weights` in the order of the folders, `[n_folders]`; `c` is the branch `data`
    of the config tree."""
    names = c.loaded.stored.folders if c.stored_tokens else []
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
    return torch.tensor([weights[name] for name in names], dtype=torch.float64)


def check_takes_mask(model: torch.nn.Module) -> None:
    """Raise ConfigError if a model cannot keep the documents of packed windows apart."""
    if "attention_mask" not in signature(model.forward).parameters:
        raise ConfigError(
            "model.architecture: its forward has no argument attention_mask, which packed"
            " windows need: add it, or set data.windows=anywhere"
        )


def check_large_text(root: Any, longest: int) -> None:
    """Raise ConfigError if the keys need much memory for the text; `root` is the config tree."""
    c = root.data
    n_tokens = len(c.training_ids)
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
    if root.objective.nsp and (c.loaded.is_sample or c.loaded.has_documents):
        raise ConfigError(
            "objective.nsp needs all speeches in memory, and this text stays on the disk: use sop"
        )
