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
    words = ["".join(row) for row in generator.choice(LETTERS, (N_WORDS, 5))]
    shares = 1 / np.arange(1, N_WORDS + 1)
    lines = []
    sizes = generator.permutation(np.geomspace(20, longest, n_documents).astype(int))
    for size in sizes:
        ranks = generator.choice(N_WORDS, size, p=shares / shares.sum())
        text = " ".join(words[rank] for rank in ranks)
        lines.append(json.dumps({"text": text}) + "\n")
    write_atomically(path, "".join(lines).encode())
