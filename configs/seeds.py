"""One seed for the user, a stream of its own for each random draw."""

import zlib

import numpy as np


def derived_seed(seed: int, stream: str) -> int:
    """A seed for the draw that `stream` names. Streams and neighbouring seeds are independent of each other."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
