"""Maps a function over many items on all cores."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The results for all items, in their order. Only a few items are in memory at the same time.

    Threads are enough, because NumPy and tokenizers release Python's lock while they work.
    """
    n_threads = os.cpu_count() or 1
    futures = deque[Future[Result]]()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            futures.append(pool.submit(function, item))
            if len(futures) == 2 * n_threads:
                yield futures.popleft().result()
        for future in futures:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the rest is not computed
