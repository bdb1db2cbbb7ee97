"""Checkpoints of sharded models. All processes write their rows into one file, so none needs the whole model.

It has the format of `training.checkpoint.Content.save`. All processes must see its folder.
"""

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
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
    """Write a checkpoint to `path`, while the other processes are in `help_to_write`.

    Returns a function that adds the hash and renames the file, without the other processes. Raises OSError if a process
    cannot write.
    """
    header, begins = layout(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_bytes(header)
        processes.from_first((path, begins))
        checksums = write_rows(path, begins, content.tensors, processes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    sharded = [name for name, tensor in content.tensors.items() if is_sharded(tensor)]
    return partial(finish, path, header, content.text, sharded, checksums)


def finish(
    written: Path, header: bytes, text: str, sharded: Sequence[str], checksums: Sequence[int], path: Path
) -> None:
    """Check that the rows of all processes are in the file, add the hash, and rename the file."""
    tensors, _ = map_file(written)
    for rank, expected in enumerate(checksums):
        share = Processes(rank, len(checksums)).share
        if checksum(tensors[name][share(len(tensors[name]))] for name in sharded) != expected:
            raise OSError(errno.EIO, f"rows of process {rank} are missing in the file")
    with open(written, "r+b") as file:
        file.write(header.replace(UNKNOWN.encode(), digest(tensors, text).encode(), 1))
    flush(written)
    os.replace(written, path)


def help_to_write(tensors: Mapping[str, torch.Tensor], processes: Processes) -> bool:
    """Write this process's rows of `tensors` into the file of the first process, if there is one, until it sends None.

    Returns whether all processes could write theirs.
    """
    is_written = False
    while (message := processes.from_first(None)) is not None:
        path, begins = message
        with suppress(OSError):  # the first process raises it
            write_rows(path, begins, tensors, processes)
            is_written = True
    return is_written


def write_rows(path: Path, begins: Mapping[str, int], tensors: Mapping[str, Any], processes: Processes) -> list[int]:
    """Write this process's rows of sharded tensors at their offsets; the first one also writes the other tensors.

    Returns the checksum of the rows of each process. Raises OSError in all processes if one cannot write.
    """
    mine = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
    failed, others = "", {name: tensor for name, tensor in tensors.items() if not is_sharded(tensor)}
    try:
        with os.fdopen(os.open(path, os.O_WRONLY), "wb") as file:  # as `r+b`, network file systems would read pages too
            for name, tensor in (mine | (others if processes.is_first else {})).items():
                n_before = rows_of(tensor).start * (tensor.nbytes // len(tensor)) if name in mine else 0
                file.seek(begins[name] + n_before)
                file.write(content_of(local(tensor)))
        flush(path)
    except OSError as error:
        failed = (f"process {processes.rank}: " if processes.rank else "") + (error.strerror or f"{error}")
    found = processes.of_all((failed, checksum(map(local, mine.values()))))
    if failures := [failed for failed, _ in found if failed]:
        raise OSError(errno.EIO, failures[0])
    return [each for _, each in found]


def content_of(tensor: torch.Tensor) -> memoryview | bytes:
    """The bytes of a tensor. A process may have no rows, and PyTorch gives no view of them."""
    return b"" if not tensor.numel() else tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def checksum(tensors: Iterable[torch.Tensor]) -> int:
    value = 0
    for tensor in tensors:
        value = zlib.crc32(content_of(tensor), value)
    return value


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
