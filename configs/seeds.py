"""One seed per run, and an independent stream of random numbers for each use."""

import zlib

import numpy as np


def derived_seed(seed: int, stream: str) -> int:
    """The seed of the named stream. Streams and neighboring seeds are statistically independent."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
