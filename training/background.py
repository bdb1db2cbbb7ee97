"""The losses that a run is compared with, computed beside the training in a process of its own."""

import contextlib
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import numpy as np
import torch

from data.corpus import Corpus
from data.reference_losses import counting_losses, floor_losses, is_cached, mean_loss

SMALL = 100_000  # characters: for a text of this size counting takes less than starting a process


class References:
    """Uniform and unigram at once; counting, and for the built-in play the floor, as soon as they are computed."""

    def __init__(self, text: Corpus, at_once: dict[str, float]):
        """`at_once` are the losses that are known already, by name, in nats."""
        self.lines = dict(at_once)
        self._floor: np.ndarray | None = None
        self._has_floor = text.automaton is not None
        self._from_child: Connection | None = None
        if is_cached(text) or len(text.text) <= SMALL:
            self._take(*_compute(text))
        else:
            context = multiprocessing.get_context("spawn")
            self._from_child, to_parent = context.Pipe(duplex=False)
            # A daemon: it never outlives the run, nor keeps it from ending.
            context.Process(target=_compute_in_child, args=(text, to_parent), daemon=True).start()
            to_parent.close()

    def is_complete(self, wait_seconds: float = 0.0) -> bool:
        """Whether counting is known, after waiting so long for it."""
        if self._from_child is not None and self._from_child.poll(wait_seconds):
            self._receive()
        return "counting" in self.lines

    def floor(self) -> np.ndarray | None:
        """The floor's summed losses `[n_windows]`; None where it is not known. Waits for it."""
        if self._has_floor and self._from_child is not None:
            self._receive()
        return self._floor

    def _receive(self) -> None:
        assert self._from_child is not None
        with contextlib.suppress(EOFError):  # the child died: the run goes on without what it would have told
            self._take(*self._from_child.recv())
        self._from_child = None

    def _take(self, counting: np.ndarray, floor: np.ndarray | None) -> None:
        self.lines["counting"] = mean_loss(counting)
        if floor is not None:
            self._floor = floor
            self.lines["floor"] = mean_loss(floor)


def _compute(text: Corpus) -> tuple[np.ndarray, np.ndarray | None]:
    return counting_losses(text), floor_losses(text) if text.automaton else None


def _compute_in_child(text: Corpus, to_parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which ends its daemons
    os.nice(10)  # training comes first
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    with contextlib.suppress(BrokenPipeError):  # the run has ended before
        to_parent.send(_compute(text))
