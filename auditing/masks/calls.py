"""Serves the calls of an audit of masks, next to the target: in its own process, or in a test's."""

import os
import pickle
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

# get_worker_info() returns `worker._worker_info`
from torch.utils.data._utils import worker

from auditing.errors import TargetEndedError, TargetError, exit_status, raised
from auditing.masks.target import candidates, resolve
from auditing.masks.texts import (
    Masked,
    Text,
    abstract_text,
    random_words,
    tokenized_text,
)
from auditing.masks.tokens import (
    Facts,
    MaskOptions,
    most_frequent,
    token_ids,
    tokenizer_of,
)
from auditing.process import read, write
from auditing.statistics import Array

UNKNOWN = "the number of tokens is unknown: state --n-tokens (n_tokens=) and special ids: --mask, --padding, --special"
NO_DATASET: Any = None
PROBE = (32, 64)  # windows of the calls that find out what a target is


def seed(number: int) -> None:
    """Seed all global generators."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def generators() -> dict[str, int]:
    """A hash of the state of each global generator."""
    numpy = pickle.dumps(np.random.get_state(legacy=False))  # of any bit generator
    states = {
        "Python": random.getstate(),
        "NumPy": numpy,
        "PyTorch": torch.get_rng_state().numpy().tobytes(),
    }
    return {name: hash(state) for name, state in states.items()}


class Service:
    """Holds the masker and the texts, so that calls only name rows of them: `probe`, then the
    others in any order."""

    seed = staticmethod(seed)

    def __init__(self, imported: Any):
        """Raises TargetError if it is not a masker and does not make one."""
        self.function = resolve(imported)
        self.texts: dict[str, Text] = {}
        # for the texts of a tokenizer; empty if it has no words
        self.words: list[str] | None = None

    def probe(self, options: MaskOptions) -> Facts:
        """Find out how the target is called and what the ids mean.

        The calls run in a worker process: a masker's own generator is still unused afterwards.
        """
        tokens = token_ids(self.function, options)
        if tokens is None:
            raise TargetError(UNKNOWN)
        self.tokens = tokens
        problems = []

        for target in candidates(self.function, options.kind):
            self.target = target
            try:
                text = self.write("probe", *PROBE, False, options.seed)
                ((masked,),) = self.mask_in_workers(
                    "probe", np.arange(PROBE[0]), 1, 1, options.seed
                )
            except TargetEndedError:
                raise
            except TargetError as error:
                problems.append(str(error))
                continue
            if tokens.mask is None and masked.inputs.shape == text.ids.shape:
                self.tokens = tokens.with_mask(
                    most_frequent(masked.inputs[masked.inputs != text.ids], 0.5)
                )
            return Facts(self.function, target.kind, self.tokens)

        raise TargetError(
            problems[0] + ": --kind says how to call it" * (options.kind is None)
        )

    def write(
        self, name: str, n_windows: int, width: int, is_ragged: bool, seed: int
    ) -> Text:
        """Write a text for the target; it is kept under `name`."""
        tokenizer = (
            tokenizer_of(self.function)
            if self.target.kind in ("collator", "dict")
            else None
        )
        if self.words is None and tokenizer:
            try:
                self.words = random_words(
                    tokenizer, self.tokens, np.random.default_rng(seed)
                )
            except (
                ValueError,
                TypeError,
                NotImplementedError,
            ):  # a tokenizer of another interface
                self.words = []

        of_words: list[Any] = (
            [tokenizer, self.words] if tokenizer and self.words else []
        )
        write: Callable[..., Text] = tokenized_text if of_words else abstract_text
        self.texts[name] = write(
            *of_words, self.tokens, n_windows, width, is_ragged, seed
        )
        return self.texts[name]

    def mask(self, name: str, rows: Array) -> Masked:
        """Mask some windows of a text."""
        return self.target(self.texts[name], rows, self.tokens)

    def mask_in_workers(
        self, name: str, rows: Array, n_workers: int, n_calls: int, seed: int
    ) -> list[list[Masked]]:
        """Mask the same windows `n_calls` times in each of some workers, `[worker][call]`.

        As with a DataLoader, a worker inherits the state of this process, but has seeds of its own.
        """

        def work(number: int) -> list[Masked]:
            self.seed(seed + number)
            facts: Any = {"id": number, "num_workers": n_workers, "seed": seed + number}
            worker._worker_info = worker.WorkerInfo(**facts, dataset=NO_DATASET)
            return [
                replace(self.mask(name, rows), generators=generators())
                for _ in range(n_calls)
            ]

        size = [len(rows), self.texts[name].ids.shape[1]]
        return [
            in_child(partial(work, number), f"called with ids int64 {size}")
            for number in range(n_workers)
        ]


def in_child(function: Callable[[], Any], call: str) -> Any:
    """The result of a function in a forked process, whose state this process does not share.

    Raises TargetError if it raises anything, and TargetEndedError if it ends the process. `call`
    begins the message.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answer"
        child = os.fork()
        if not child:
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)  # the threads of this process are not in the child
            try:
                write(path, function())
            except TargetError as error:
                write(path, error)
            except (
                BaseException
            ) as error:  # KeyboardInterrupt too: the target may raise anything
                write(path, TargetError(f"the target raised {raised(error)}"))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not path.exists():
            how = exit_status(os.waitstatus_to_exitcode(status))
            raise TargetEndedError(
                f"{call}: the target ended the process that called it ({how})"
            )
        answer = read(path)

    if isinstance(answer, TargetError):
        raise answer
    return answer
