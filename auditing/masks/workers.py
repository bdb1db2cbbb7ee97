"""Calls a function in the worker processes of a PyTorch DataLoader, which inherit the state of this process."""

import multiprocessing
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from auditing.errors import TargetEnded, TargetError, raised

CAN_FORK = "fork" in multiprocessing.get_all_start_methods()


class Answer(NamedTuple):
    """The result of a call in a worker, or the line of the error that it raised."""

    worker: int
    result: Any
    error: str | None


class Calls(Dataset[Answer]):
    """A dataset whose every item is a call of one function."""

    def __init__(self, function: Callable[[], Any], n_calls: int):
        self.function = function
        self.n_calls = n_calls

    def __len__(self) -> int:
        return self.n_calls

    def __getitem__(self, index: int) -> Answer:
        info = get_worker_info()
        worker = info.id if info else 0
        try:
            return Answer(worker, self.function(), None)
        except TargetError as error:
            return Answer(worker, None, str(error))
        except Exception as error:
            return Answer(worker, None, raised(error))


def in_workers(function: Callable[[], Any], n_workers: int, calls_per_worker: int, seed: int) -> list[list[Any]]:
    """The results of `calls_per_worker` calls per worker, `[worker][call]`. The state of this process stays as it is.

    Workers are seeded as a DataLoader does it: `seed` plus the worker's number. Raises TargetError, and
    TargetEnded if a worker ends during a call.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are fewer cores than workers
        loader = DataLoader(
            Calls(function, n_workers * calls_per_worker),
            batch_size=None,
            num_workers=n_workers if CAN_FORK else 0,
            multiprocessing_context="fork" if CAN_FORK else None,
            generator=torch.Generator().manual_seed(seed),
            collate_fn=lambda answer: answer,
        )
        try:
            answers = list(loader)
        except RuntimeError as error:  # a worker is gone
            raise TargetEnded("the target ended the process that called it") from error
    results: list[list[Any]] = [[] for _ in range(n_workers)]
    for answer in answers:
        if answer.error is not None:
            raise TargetError(answer.error)
        results[answer.worker].append(answer.result)
    return results
