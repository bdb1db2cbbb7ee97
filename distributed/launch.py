"""How torchrun has started this process, from its environment variables. Without torchrun there is
one process."""

import os


def started_by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    """The number of this process; 0 without torchrun."""
    return int(os.environ["RANK"]) if started_by_torchrun() else 0


def n_started() -> int:
    """How many processes torchrun has started for this run; 1 without torchrun."""
    return int(os.environ["WORLD_SIZE"]) if started_by_torchrun() else 1


def n_on_machine() -> int:
    """How many processes torchrun has started for this run on this machine; 1 without torchrun."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if started_by_torchrun() else 1


def local_rank() -> int:
    """The number of this process on its machine, which is also the number of its device."""
    return int(os.environ["LOCAL_RANK"]) if started_by_torchrun() else 0


def python_command() -> str:
    """The beginning of a command that starts a program with as many processes as this one."""
    if not started_by_torchrun():
        return "python"
    several = "--nnodes=... --rdzv-backend=c10d --rdzv-id=... --rdzv-endpoint=..."
    machines = "--standalone" if n_on_machine() == n_started() else several
    return f"torchrun {machines} --nproc_per_node={n_on_machine()}"
