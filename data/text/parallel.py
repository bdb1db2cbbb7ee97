"""Applies a function to many items on all cores, and returns the results in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """The results for all items, in their order. Only a few items are in memory at the same time.

    Threads are enough, because NumPy and tokenizers release Python's lock while they work.
    """
    n_threads, futures = os.cpu_count() or 1, deque[Future[Result]]()
    pool = ThreadPoolExecutor(n_threads)
    submitted = (pool.submit(function, item) for item in items)
    try:
        futures.extend(islice(submitted, 2 * n_threads))
        while futures:
            yield futures.popleft().result()
            futures.extend(islice(submitted, 1))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the rest is not computed
