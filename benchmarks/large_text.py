"""Speed and memory of converting a large text, and speed of reading its windows.

python -m benchmarks.large_text [--megabytes 3000]

The text consists of speeches of the built-in play in random order; every tenth has letters beyond
ASCII. Each conversion runs in a process of its own with an empty cache: the survey of the
characters, then the tokens. Its memory is the peak of the process above that of the process after
its imports. The reader draws windows of several sizes, first from a file that is not in the
operating system's cache, then again. The files are in the system's temporary folder, or in that of
the environment variable TMPDIR.
"""

import os
import random
import resource
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import data.corpus
from benchmarks.command import run_benchmark
from benchmarks.turns import Measures, compare, in_process
from configs.command_line.command import resolve
from configs.experiment import configs_of
from configs.keys import ConfigError
from data.play.grammar import play

SHARES = {"characters": 1.0, "bytes": 1.0, "bpe:8192": 0.1}  # of the text's size
# windows and characters; the last is of `gpu`
SHAPES = ((64, 32), (8, 256), (256, 256))
SECONDS = 3.0  # per measurement of the reader


def main(options: Namespace, path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        conversions = {}
        for tokens, share in SHARES.items():
            text = folder / f"{share}.txt"
            if not text.exists():
                write(text, share * options.megabytes)
            conversions[tokens] = partial(
                in_process, convert, text, tokens, folder / tokens
            )
        readers = {}
        for shape in SHAPES:
            name = f"windows of {shape[0]} x {shape[1]}"
            readers[name] = partial(
                in_process, read, folder / "1.0.txt", folder / "characters", *shape
            )
        groups = {"conversion": conversions, "reader": readers}
        compare(path, groups, 1, megabytes=options.megabytes)


def write(path: Path, megabytes: float) -> None:
    speeches = play().split("\n\n")
    speeches[::10] = [
        speech.replace("a", "ä").replace("o", "œ") for speech in speeches[::10]
    ]
    generator = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            file.write("\n\n".join(generator.choices(speeches, k=5_000)) + "\n\n")


def convert(text: Path, tokens: str, cache: Path) -> Measures:
    """Survey and convert a text with an empty cache."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    megabytes = text.stat().st_size / 1e6

    if data_of(text, tokens, cache).stored_tokens is None:
        raise ConfigError(
            f"{megabytes:.0f} MB are read without converting: raise --megabytes"
        )
    seconds = time.perf_counter() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "MB": megabytes,
        "MB per second": megabytes / seconds,
        "seconds": seconds,
        "MB of memory": memory / 1e6,
    }


def data_of(text: Path, tokens: str, cache: Path) -> Any:
    data.corpus.CACHE = cache
    keys = {"data.corpus": str(text), "data.tokens": tokens}
    return configs_of(resolve({"device": "cpu"}, keys)).data


def read(text: Path, cache: Path, n_windows: int, seq_len: int) -> Measures:
    """The reader's speed on a file of characters that is not in the operating system's cache, and
    then once more."""
    torch.set_num_threads(1)
    windows = data_of(text, "characters", cache).training_windows

    # to evict it from the operating system's cache
    with open(next(cache.rglob("training.ids")), "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    rates = {}
    for state in ("not cached", "cached"):
        began = time.perf_counter()
        seconds = 0.0
        n = 0
        while seconds < SECONDS:
            windows.draw(n_windows, seq_len)
            n += n_windows * seq_len
            seconds = time.perf_counter() - began
        rates[f"characters per second, {state}"] = n / seconds

    return rates


if __name__ == "__main__":
    run_benchmark(main, megabytes=3_000.0)
