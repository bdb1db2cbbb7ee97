"""Checkpoints of sharded models. All processes write their rows into one file, so none needs the
whole model.

It has the format of `training.checkpoint.Content.save`. All processes must see its folder.
"""

import errno
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch

from distributed.meeting import FOREIGN
from distributed.processes import Processes
from distributed.sharding import rows_of
from runs.errors import StoppedError
from runs.files import flush
from training.checkpoint import Content, digest, is_sharded, map_file
from training.optimizers import local

# The names of types in safetensors files.
TYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
UNKNOWN = "0" * 64  # in the place of the hash, until everything is written
NUMBERS = count()  # of temporary files


def save_together(content: Content, processes: Processes, path: Path) -> None:
    """Save a checkpoint, while the other processes are in `help_to_write`.

    Raises OSError if a process cannot write, or if its rows do not arrive in the file.
    """
    header, begins, size = layout(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A new name each time: a network file system may know an old one as the file that was renamed.
    written = path.with_name(f"{path.name}.{os.getpid()}.{next(NUMBERS)}.tmp")
    try:
        written.write_bytes(header)
        # rows that do not arrive are then zeros, not a shorter file
        os.truncate(written, size)
        processes.from_first({"written": str(written), "begins": begins})
        checksums = write_rows(written, begins, content.tensors, processes)
        finish(written, header, content, checksums)
        os.replace(written, path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def finish(
    written: Path, header: bytes, content: Content, checksums: Sequence[int]
) -> None:
    """Check that the rows of all processes are in the file, and add the hash."""
    tensors, _ = map_file(written)
    sharded = [name for name, tensor in content.tensors.items() if is_sharded(tensor)]
    for rank, expected in enumerate(checksums):
        share = Processes(rank, len(checksums)).share
        if (
            checksum(tensors[name][share(len(tensors[name]))] for name in sharded)
            != expected
        ):
            raise OSError(errno.EIO, f"rows of process {rank} are missing in the file")
    with open(written, "r+b") as file:
        file.write(
            header.replace(UNKNOWN.encode(), digest(tensors, content.text).encode(), 1)
        )
    flush(written)


def help_to_write(tensors: Mapping[str, torch.Tensor], processes: Processes) -> bool:
    """Write this process's rows of `tensors` into each file that the first process writes, until
    that sends whether it has saved them, which is the result."""
    while True:
        message = processes.from_first(None)
        if isinstance(message, bool):
            return message
        written = Path(message["written"])
        if written.suffix != ".tmp":
            raise StoppedError(FOREIGN)
        with suppress(OSError):  # the first process raises it
            write_rows(written, message["begins"], tensors, processes)


def write_rows(
    written: Path,
    begins: Mapping[str, int],
    tensors: Mapping[str, Any],
    processes: Processes,
) -> list[int]:
    """Write this process's rows of sharded tensors at their offsets; the first one also writes the
    other tensors.

    Returns the checksum of the rows of each process. Raises OSError in all processes if one cannot
    write.
    """
    error: Exception | None = None
    mine = 0
    try:
        mine = write_own_rows(written, begins, tensors, processes.is_first)
    except Exception as raised:  # first, tell the others, which wait
        error = raised
    reason = "" if error is None else getattr(error, "strerror", None) or f"{error}"
    results = processes.of_all([reason, mine])
    if error and not isinstance(error, OSError):
        raise error
    for rank, (reason, _) in enumerate(results):
        if reason:
            raise OSError(errno.EIO, f"process {rank}: {reason}" if rank else reason)
    return [checksum for _, checksum in results]


def write_own_rows(
    written: Path, begins: Mapping[str, int], tensors: Mapping[str, Any], is_first: bool
) -> int:
    """Write what `write_rows` says; returns the checksum of this process's rows."""
    rows = []
    # as `r+b`, network file systems would read pages
    with os.fdopen(os.open(written, os.O_WRONLY), "wb") as file:
        for name, tensor in tensors.items():
            begin = begins[name]
            if is_sharded(tensor):
                begin += rows_of(tensor).start * (tensor.nbytes // len(tensor))
                rows.append(local(tensor))
            elif not is_first:
                continue
            file.seek(begin)
            file.write(content_of(local(tensor)))
    flush(written)
    return checksum(rows)


def content_of(tensor: torch.Tensor) -> memoryview | bytes:
    """The bytes of a tensor, which may be empty: a process may have no rows."""
    if not tensor.numel():
        return b""
    return tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def checksum(tensors: Iterable[torch.Tensor]) -> int:
    value = 0
    for tensor in tensors:
        value = zlib.crc32(content_of(tensor), value)
    return value


def layout(content: Content) -> tuple[bytes, dict[str, int], int]:
    """The header of a safetensors file, where in the file each tensor begins, and the size of the
    file."""
    entries: dict[str, Any] = {
        "__metadata__": {"sha256": UNKNOWN, "state": content.text}
    }
    tensors = content.tensors
    offsets = {}
    end = 0
    # so that all are aligned
    for name in sorted(tensors, key=lambda name: -tensors[name].element_size()):
        tensor = tensors[name]
        offsets[name] = end
        end += tensor.nbytes
        entries[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": [*tensor.shape],
            "data_offsets": [offsets[name], end],
        }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    begins = {name: len(header) + offset for name, offset in offsets.items()}
    return header, begins, len(header) + end
