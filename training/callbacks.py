"""Whom the training loop tells how it goes, and asks what is wanted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from training.samples import Guess


class Callbacks(Protocol):
    """Shows a run, on a terminal or elsewhere; see `training.tracking`."""

    def says(self, line: str) -> None: ...
    def progressed(self, progress: float) -> None: ...
    def evaluated(self, row: Mapping[str, Any]) -> None: ...
    def sampled(self, samples: Sequence[Sequence[Guess]]) -> None: ...
    def wanted_knobs(self) -> Mapping[str, Any] | None:
        """How someone wants the knobs to stand, if anyone does."""


@contextmanager
def tolerated(callbacks: Callbacks, what: str) -> Iterator[None]:
    """A disk that is full, or gone, is said and not died of."""
    try:
        yield
    except OSError as error:
        callbacks.says(f"cannot write {what} ({error.strerror or error})")
