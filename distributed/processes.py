"""The processes of a run, one per device, which torchrun starts. Without torchrun there is one."""

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from distributed.launch import local_rank
from distributed.meeting import Meeting, store_of_attempt
from runs.errors import InputError, StoppedError

# Of an exchange of tensors; processes that may take longer meet first. torchrun kills a process
# that does not end by itself 30 seconds after another one has ended, so that all of them are gone
# within a minute.
TIMEOUT = timedelta(seconds=20)
LOST = "another process of this run has ended; the last checkpoint is whole"
HANGS = "another process of this run does not answer; the last checkpoint is whole"
GLOO_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
GLOO_HANGS = "Timed out waiting"
VERSIONS = {
    "Python": platform.python_version(),
    "PyTorch": str(torch.__version__),
    "NumPy": np.__version__,
}


class DifferentProcessError(InputError):
    """A process has loaded something else than the first one. All processes raise it with the same
    line."""

    raised_by_all = True


@dataclass(frozen=True)
class Processes:
    """This process among those of its run. Each method is to be called by all of them.

    Values (JSON) are exchanged patiently: a process waits for the others while they convert a text,
    compile or save. An exchange of tensors must begin within 20 seconds in all processes. A single
    process exchanges nothing.
    """

    rank: int = 0
    n: int = 1
    meeting: Meeting | None = field(default=None, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's files and talks to the user."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """The share of this process, if `n` things are divided into blocks of equal size; the last
        may be smaller."""
        size = -(-n // self.n)
        return slice(min(self.rank * size, n), min((self.rank + 1) * size, n))

    def agree(self, *values: float) -> list[float]:
        """The first process's values: those that depend on a clock or a signal must be the same
        everywhere."""
        return self.copy(torch.tensor(values, dtype=torch.float64)).tolist()

    def from_first(self, value: Any) -> Any:
        return self.of_all(value)[0]

    def of_all(self, value: Any = None) -> list[Any]:
        """The values of all processes, by rank; also waits for them, however long they take to get
        here."""
        return self.meeting.of_all(value) if self.meeting else [value]

    def compare(self, load: Callable[[], Mapping[str, Any]]) -> None:
        """Compare values by name with those of the first process. A process that cannot load them
        is different too.

        Raises DifferentProcessError in all processes if one of them differs.
        """
        try:
            mine: Any = load()
        except ValueError as error:  # its message is one line for the user
            mine = f"{error}"
        loaded = self.of_all(mine)
        for number, its in enumerate(loaded):
            if isinstance(its, str):
                raise DifferentProcessError(f"process {number}: {its}")
            for name, first in loaded[0].items():
                if its.get(name) != first:
                    difference = (
                        f"its {name} is {_shown(its.get(name))}, not {_shown(first)}"
                    )
                    raise DifferentProcessError(
                        f"process {number} differs from process 0: {difference}"
                    )

    def connect(self, device: str, data: Any) -> None:
        """Let the processes exchange tensors from now on: over NCCL for CUDA devices, over gloo for
        CPUs.

        `data` is the branch of the config tree; all processes must have loaded the same. Raises
        DifferentProcessError.
        """
        if self.n == 1:
            return

        def loaded() -> dict[str, Any]:
            return {
                "text": data.loaded.sha256,
                "vocabulary": data.vocabulary.description(),
                "number of tokens": len(data.training_ids),
            }

        self.compare(loaded)
        backend = "gloo"
        own_device = None
        if device.startswith("cuda"):
            backend = "cpu:gloo,cuda:nccl"
            own_device = torch.device("cuda", local_rank())
            torch.cuda.set_device(own_device)
        self.of_all()
        dist.init_process_group(
            backend,
            store=store_of_attempt(),
            rank=self.rank,
            world_size=self.n,
            timeout=TIMEOUT,
            device_id=own_device,  # NCCL connects now, not within the first exchange
        )

    def copy(self, tensor: torch.Tensor, rank: int = 0) -> torch.Tensor:
        """Overwrite a tensor by that of one process, in place."""
        dist.broadcast(tensor, src=rank)
        return tensor

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over all processes, in place."""
        dist.all_reduce(tensor)
        return tensor

    def exchange(self, blocks: torch.Tensor) -> torch.Tensor:
        """Give block i of the contiguous `[n, ...]` to process i; returns the blocks that this one
        gets from all."""
        received = torch.empty_like(blocks)
        dist.all_to_all_single(received, blocks)
        return received


@contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Raises StoppedError, whose message is one line, in place of the errors of gloo, NCCL and the
    store."""
    try:
        yield
    except RuntimeError as error:
        if GLOO_HANGS in str(error):
            raise StoppedError(HANGS) from error
        if isinstance(error, dist.DistError) or any(
            text in str(error) for text in GLOO_LOST
        ):
            raise StoppedError(LOST) from error
        raise


def _shown(value: Any) -> str:
    """A value for a message; only the hash of a long one."""
    text = str(value)
    if len(text) <= 64:
        return text
    return f"one with the hash {hashlib.sha256(text.encode()).hexdigest()[:16]}"
