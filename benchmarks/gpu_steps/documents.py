"""Documents of 20 to 2,000 made-up words, with more distinct words than a BPE of 32,768 has tokens."""

import json
from pathlib import Path

import numpy as np

from runs.files import write_atomically

N_WORDS = 60_000
LETTERS = np.array(list("aeioubcdfghklmnprst"))
SHORTEST = 20  # words per document
LONGEST = 2_000


def write_documents(path: Path, n_documents: int) -> None:
    """Write documents as JSON, one per line. Lengths are spread evenly over their logarithm, and
    words occur in inverse proportion to their rank."""
    generator = np.random.default_rng(0)
    letters = generator.choice(LETTERS, (N_WORDS, 7))
    lengths = generator.integers(2, 8, N_WORDS)
    words = ["".join(row[:n]) for row, n in zip(letters, lengths.tolist(), strict=True)]
    shares = 1 / np.arange(1, N_WORDS + 1)
    log_sizes = generator.uniform(np.log(SHORTEST), np.log(LONGEST), n_documents)

    lines = []
    for size in np.exp(log_sizes).astype(int):
        chosen = generator.choice(N_WORDS, size, p=shares / shares.sum())
        lines.append(json.dumps({"text": " ".join(words[i] for i in chosen)}) + "\n")
    write_atomically(path, "".join(lines).encode())
