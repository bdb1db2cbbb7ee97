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

from distributed.processes import Processes
from distributed.sharding import rows_of
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
}
TYPES |= {
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
        os.truncate(written, size)  # rows that do not arrive are then zeros, not a shorter file
        processes.from_first([str(written), begins])
        checksums = write_rows(written, begins, content.tensors, processes)
        finish(written, header, content, checksums)
        os.replace(written, path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def finish(written: Path, header: bytes, content: Content, checksums: Sequence[int]) -> None:
    """Check that the rows of all processes are in the file, and add the hash."""
    tensors, _ = map_file(written)
    sharded = [name for name, tensor in content.tensors.items() if is_sharded(tensor)]
    for rank, expected in enumerate(checksums):
        share = Processes(rank, len(checksums)).share
        if checksum(tensors[name][share(len(tensors[name]))] for name in sharded) != expected:
            raise OSError(errno.EIO, f"rows of process {rank} are missing in the file")
    with open(written, "r+b") as file:
        file.write(header.replace(UNKNOWN.encode(), digest(tensors, content.text).encode(), 1))
    flush(written)


def help_to_write(tensors: Mapping[str, torch.Tensor], processes: Processes) -> bool:
    """Write this process's rows of `tensors` into each file that the first process writes, until
    that sends whether it has saved them, which is the result."""
    while not isinstance(message := processes.from_first(None), bool):
        name, begins = message
        with suppress(OSError):  # the first process raises it
            write_rows(Path(name), begins, tensors, processes)
    return message


def write_rows(
    written: Path, begins: Mapping[str, int], tensors: Mapping[str, Any], processes: Processes
) -> list[int]:
    """Write this process's rows of sharded tensors at their offsets; the first one also writes the
    other tensors.

    Returns the checksum of the rows of each process. Raises OSError in all processes if one cannot
    write.
    """
    failed, value, error = "", 0, None
    try:
        mine = {name: tensor for name, tensor in tensors.items() if is_sharded(tensor)}
        others = {name: tensor for name, tensor in tensors.items() if not is_sharded(tensor)}
        # as `r+b`, network file systems would read pages
        with os.fdopen(os.open(written, os.O_WRONLY), "wb") as file:
            for name, tensor in (mine | (others if processes.is_first else {})).items():
                n_before = (
                    rows_of(tensor).start * (tensor.nbytes // len(tensor)) if name in mine else 0
                )
                file.seek(begins[name] + n_before)
                file.write(content_of(local(tensor)))
        flush(written)
        value = checksum(map(local, mine.values()))
    except Exception as raised:  # first, tell the others, which wait
        error, failed = raised, getattr(raised, "strerror", None) or f"{raised}"
    found = processes.of_all((failed, value))
    if error and not isinstance(error, OSError):
        raise error
    for rank, (failed, _) in enumerate(found):
        if failed:
            raise OSError(errno.EIO, f"process {rank}: {failed}" if rank else failed)
    return [value for _, value in found]


def content_of(tensor: torch.Tensor) -> memoryview | bytes:
    """The bytes of a tensor, which may be empty: a process may have no rows."""
    return (
        b""
        if not tensor.numel()
        else tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data
    )


def checksum(tensors: Iterable[torch.Tensor]) -> int:
    value = 0
    for tensor in tensors:
        value = zlib.crc32(content_of(tensor), value)
    return value


def layout(content: Content) -> tuple[bytes, dict[str, int], int]:
    """The header of a safetensors file, where in the file each tensor begins, and the size of the
    file."""
    entries: dict[str, Any] = {"__metadata__": {"sha256": UNKNOWN, "state": content.text}}
    end, tensors = 0, content.tensors
    # so that all are aligned
    for name in sorted(tensors, key=lambda name: -tensors[name].element_size()):
        begin, end = end, end + tensors[name].nbytes
        entries[name] = {"dtype": TYPES[tensors[name].dtype], "shape": [*tensors[name].shape]}
        entries[name]["data_offsets"] = [begin, end]
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    begins = {name: 8 + len(text) + entries[name]["data_offsets"][0] for name in tensors}
    return len(text).to_bytes(8, "little") + text, begins, 8 + len(text) + end
