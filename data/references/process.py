"""The reference losses of a run, computed in a background process while it trains."""

import contextlib
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import numpy as np
import torch

from data.corpus import Corpus
from data.references.losses import cached_losses, mean_losses, window_losses

SMALL = 100_000  # characters: on shorter texts, counting takes less time than starting a process


class References:
    """Uniform and unigram at once; counting, and for the built-in play the floor, as soon as they
    are computed."""

    def __init__(self, corpus: Corpus, known: dict[str, float], *, why_not: str = ""):
        """`known` are losses that need no computation, by name, in nats per masked token.

        `why_not` is the reason if counting does not apply.
        """
        self.losses = dict(known)
        self._floor: np.ndarray | None = None
        self._why_not = why_not
        self._has_floor = corpus.automaton is not None
        self._counted = ""
        if corpus.is_sample:
            self._counted = f", which has read {len(corpus.training):,} characters only"

        self._receiver: Connection | None = None
        if why_not:
            return
        if len(corpus.training) <= SMALL or cached_losses(corpus):
            self._take(window_losses(corpus))
        else:
            context = multiprocessing.get_context("spawn")
            self._receiver, sender = context.Pipe(duplex=False)
            # A daemon neither outlives the run nor keeps it from ending.
            context.Process(
                target=_compute_in_process, args=(corpus, sender), daemon=True
            ).start()
            sender.close()

    def is_complete(self, wait_seconds: float = 0.0) -> bool:
        """Whether all losses are known, after waiting for it up to `wait_seconds`."""
        if self._receiver is not None and self._receiver.poll(wait_seconds):
            self._receive()
        return "counting" in self.losses or bool(self._why_not)

    def is_computing_floor(self) -> bool:
        """Whether `floor` would wait."""
        is_sent = self._receiver is None or self._receiver.poll()
        return self._has_floor and not is_sent

    def floor(self) -> np.ndarray | None:
        """The floor's summed losses `[n_windows]` in nats, or None if it is unknown. Waits for it."""
        if self._has_floor and self._receiver is not None:
            self._receive()
        return self._floor

    def meaning(self, is_complete: bool) -> str:
        """The losses' meaning in words."""
        if not is_complete:
            return "counting is being computed"
        return self._why_not or f"a model should get below counting{self._counted}"

    def _receive(self) -> None:
        assert self._receiver is not None
        # the process died: the run continues without its results
        with contextlib.suppress(EOFError):
            self._take(self._receiver.recv())
        self._receiver = None

    def _take(self, losses: dict[str, np.ndarray]) -> None:
        self.losses |= mean_losses(losses)
        self._floor = losses.get("floor")


def _compute_in_process(corpus: Corpus, sender: Connection) -> None:
    # the run handles Ctrl-C and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)  # training comes first
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
    with contextlib.suppress(BrokenPipeError):  # the run ended first
        sender.send(window_losses(corpus))
