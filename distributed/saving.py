"""Checkpoints of sharded models. All processes write their rows into one file, so none needs the whole model.

The file is the one that `training.checkpoint.Content.save` would write. All processes must see its folder.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from distributed.processes import Processes
from distributed.sharding import rows_of
from runs.files import flush
from training.checkpoint import Content, digest, is_sharded, map_file
from training.muon import local

# The names of types in safetensors files.
TYPES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
TYPES |= {torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}
UNKNOWN = "0" * 64  # in the place of the hash, until everything is written


def written_together(path: Path, content: Content, processes: Processes) -> Callable[[Path], None]:
    """Write a checkpoint to `path`, while the other processes are in `helping`. Returns what gives it its hash and its
    name, which needs no other process. Raises OSError if a process cannot write."""
    header, begins = layout(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(header)
        processes.from_first((path, begins))
        write_rows(path, begins, content.tensors, processes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return partial(finish, path, header, content.text)


def finish(written: Path, header: bytes, text: str, path: Path) -> None:
    found = digest(map_file(written)[0], text)
    with open(written, "r+b") as file:
        file.write(header.replace(UNKNOWN.encode(), found.encode(), 1))
    flush(written)
    os.replace(written, path)


@contextmanager
def helping(tensors: Mapping[str, torch.Tensor], processes: Processes) -> Iterator[None]:
    """What the first process saves inside the context, the others help to write, with their rows of `tensors`."""
    try:
        yield
    finally:
        while (message := processes.from_first(None)) is not None:  # this None is the first one's: all is saved
            path, begins = message
            with suppress(OSError):  # the first process raises it
                write_rows(path, begins, tensors, processes)


def write_rows(path: Path, begins: Mapping[str, int], tensors: Mapping[str, Any], processes: Processes) -> None:
    """Write this process's part of `tensors` where it belongs. Raises OSError in all processes if one cannot."""
    failed = ""
    try:
        mine = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor) or processes.is_first}
        with open(path, "r+b") as file:
            for name, tensor in mine.items():
                n_before = rows_of(tensor).start * (tensor.nbytes // len(tensor)) if is_sharded(tensor) else 0
                file.seek(begins[name] + n_before)
                file.write(local(tensor).cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        flush(path)
    except OSError as error:
        failed = f"process {processes.rank}: {error.strerror or error}" if processes.rank else f"{error.strerror}"
    if failures := [each for each in processes.of_all(failed) if each]:
        raise OSError(errno.EIO, failures[0])


def layout(content: Content) -> tuple[bytes, dict[str, int]]:
    """The header of a safetensors file, and where in the file each tensor begins."""
    entries: dict[str, Any] = {"__metadata__": {"sha256": UNKNOWN, "state": content.text}}
    end, tensors = 0, content.tensors
    for name in sorted(tensors, key=lambda name: -tensors[name].element_size()):  # so that all are aligned
        begin, end = end, end + tensors[name].nbytes
        entries[name] = {"dtype": TYPES[tensors[name].dtype], "shape": [*tensors[name].shape]}
        entries[name]["data_offsets"] = [begin, end]
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    begins = {name: 8 + len(text) + entries[name]["data_offsets"][0] for name in tensors}
    return len(text).to_bytes(8, "little") + text, begins
