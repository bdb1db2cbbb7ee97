"""The processes of a run, one per device, which torchrun starts. Without torchrun there is one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist

from distributed.launch import local_rank, n_started, rank, started_by_torchrun
from distributed.watchdog import Watchdog

LOST = "stopped: another process of this run has ended; the last checkpoint is whole"
LONGEST_WAIT = timedelta(days=7)  # such as for a text that the first process converts; the watchdog ends other waits
GLOO_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


class LostProcessError(Exception):
    """Another process of the run has ended before this one."""


@dataclass(frozen=True)
class Processes:
    """This process among those of its run. Each method is to be called by all of them; with one they do nothing."""

    rank: int = 0
    n: int = 1
    watchdog: Watchdog = field(default_factory=Watchdog, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's files and talks to the user."""
        return self.rank == 0

    def share(self, n_rows: int) -> slice:
        """The rows of this process, if `n_rows` are divided into blocks of equal size; the last may be smaller."""
        size = -(-n_rows // self.n)
        return slice(min(self.rank * size, n_rows), min((self.rank + 1) * size, n_rows))

    def agree(self, *values: float) -> list[float]:
        """The first process's values: those that depend on a clock or a signal must be the same everywhere."""
        if self.n == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(shared, src=0)
        return shared.tolist()

    def from_first(self, value: Any) -> Any:
        """The first process's object."""
        if self.n == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def of_all(self, value: Any) -> list[Any]:
        """The objects of all processes, by rank."""
        values: list[Any] = [value]
        if self.n > 1:
            values = [None] * self.n
            dist.all_gather_object(values, value)
        return values

    def copy_first(self, tensor: torch.Tensor) -> None:
        """Overwrite a tensor by that of the first process, in place."""
        if self.n > 1:
            dist.broadcast(tensor, src=0)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over all processes, in place."""
        if self.n > 1:
            dist.all_reduce(tensor)
        return tensor

    def sums(self, scalars: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add up scalars by name over all processes."""
        if self.n == 1:
            return dict(scalars)
        shared = self.sum(torch.stack([scalar.double() for scalar in scalars.values()]))
        return {name: total.to(scalars[name].dtype) for name, total in zip(scalars, shared, strict=True)}

    def join(self, mine: torch.Tensor, n_rows: int) -> torch.Tensor:
        """The rows of all processes: this one's are `mine`, `share(n_rows)` of them."""
        return self.join_all([mine], [n_rows])[0]

    def join_all(self, mine: Sequence[torch.Tensor], n_rows: Sequence[int]) -> list[torch.Tensor]:
        """`join` for several tensors of one type, in one exchange."""
        if self.n == 1:
            return list(mine)
        padded = [
            torch.cat([tensor, tensor.new_zeros(-(-n // self.n) - len(tensor), *tensor.shape[1:])])
            for tensor, n in zip(mine, n_rows, strict=True)
        ]
        flat = torch.cat([rows.flatten() for rows in padded])
        parts = flat.new_empty(self.n, len(flat))
        dist.all_gather(list(parts.unbind()), flat)
        of_each = zip(parts.split([rows.numel() for rows in padded], dim=1), mine, n_rows, strict=True)
        return [part.reshape(-1, *tensor.shape[1:])[:n] for part, tensor, n in of_each]


SINGLE = Processes()
_current = SINGLE


def current() -> Processes:
    """This process among those of the run that it takes part in."""
    return _current


def launch() -> str | None:
    """Identifies the torchrun command that has started this process, also when it restarts its processes.

    The first caller draws the name, and torchrun's store keeps it: --rdzv-id may be that of an earlier command.
    """
    if not started_by_torchrun():
        return None
    return _store_of_torchrun().compare_set("folio launch", "", uuid4().hex).decode()


def _store_of_torchrun() -> dist.Store:
    """A new connection to the store through which processes find each other."""
    has_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # else the first process has the store
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = not has_agents and os.environ["RANK"] == "0"
    return dist.TCPStore(address, port, is_master=is_master, multi_tenant=True)


def _store_of_attempt() -> dist.Store:
    """The same with keys of its own after each restart."""
    return dist.PrefixStore(f"folio {os.environ['TORCHELASTIC_RESTART_COUNT']}", _store_of_torchrun())


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Connects the processes that torchrun has started: over NCCL for CUDA devices, over gloo for CPUs.

    Raises LostProcessError if another one ends early.
    """
    global _current
    if n_started() == 1:
        yield SINGLE
        return
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    if device.startswith("cuda"):
        torch.cuda.set_device(local_rank())
    n = n_started()
    try:
        with Watchdog().watching(rank(), n, _store_of_attempt()) as watchdog:
            dist.init_process_group(backend, store=_store_of_attempt(), rank=rank(), world_size=n, timeout=LONGEST_WAIT)
            _current = Processes(rank(), n, watchdog)
            yield _current
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        raise LostProcessError(LOST) from error
    finally:
        _current = SINGLE
        if dist.is_initialized():
            dist.destroy_process_group()


def _is_lost_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or any(text in str(error) for text in GLOO_LOST)
