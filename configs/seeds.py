"""One seed per run, and an independent stream of random numbers for each use."""

import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def derived_seed(seed: int, stream: str) -> int:
    """The seed of the named stream. Streams and neighboring seeds are statistically independent."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(stream.encode())])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def run_seeds(program: str, arguments: Sequence[str], values: Mapping[str, Any], n: int) -> int:
    """Run a program for `n` seeds, each in its own process; stops at the first failure. Returns the exit code."""
    words = [*(word for word in arguments if not word.startswith("seed=")), "--seeds=1"]  # the last option counts
    if any(word.startswith("--init-from") for word in words):  # `last` is another run after the first seed
        words.append(f"--init-from={values['initial_weights']}")
    for seed in range(values["seed"], values["seed"] + n):
        print(f"seed {seed}", flush=True)
        code = subprocess.run([sys.executable, program, *words, f"seed={seed}"]).returncode
        if code:
            return code
    return 0
