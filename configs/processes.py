"""Parts of a run that work in several processes."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from distributed.launch import n_started

T = TypeVar("T")


def in_all_processes(kind: type[T]) -> Callable[..., T]:
    """`kind`, or if the run has several processes, the subclass that works in all of them."""
    if n_started() == 1:
        return kind
    from distributed.parallel import PARALLEL
    from distributed.processes import current

    return partial(PARALLEL[kind], processes=current())
