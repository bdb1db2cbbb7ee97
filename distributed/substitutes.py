"""Classes that take the place of others in a run with several processes."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
# `distributed.parallel` fills it; empty for a single process
SUBSTITUTES: dict[type, Callable[..., Any]] = {}


def in_all_processes(kind: type[T]) -> Callable[..., T]:
    """`kind`, or its substitute in a run with several processes."""
    return SUBSTITUTES.get(kind, kind)
