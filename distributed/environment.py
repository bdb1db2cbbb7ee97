"""What torchrun tells a process about itself; without PyTorch, for checks of the command line."""

import os


def started_by_torchrun() -> bool:
    """Whether torchrun has started this process."""
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
