"""Documents of made-up words, more distinct ones than a BPE of 32,768 has tokens."""

import json
from pathlib import Path

import numpy as np

from runs.files import write_atomically

N_WORDS = 60_000
LETTERS = np.array(list("aeioubcdfghklmnprst"))


def write_documents(path: Path, n_documents: int, longest: int) -> None:
    """Write documents of 20 to `longest` words as JSON, one per line. Their lengths are spread
    evenly over the logarithm, and words occur in inverse proportion to their rank."""
    generator = np.random.default_rng(0)
    letters = generator.choice(LETTERS, (N_WORDS, 5))
    words = ["".join(row) for row in letters]
    shares = 1 / np.arange(1, N_WORDS + 1)
    shares /= shares.sum()

    sizes = np.geomspace(20, longest, n_documents)
    lines = []
    for size in generator.permutation(sizes.astype(int)):
        ranks = generator.choice(N_WORDS, size, p=shares)
        text = " ".join(words[rank] for rank in ranks)
        line = json.dumps({"text": text})
        lines.append(f"{line}\n")
    joined = "".join(lines)
    write_atomically(path, joined.encode())
