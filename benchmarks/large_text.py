"""Speed and memory of converting a large text, and speed of reading its windows.

python -m benchmarks.large_text [--megabytes 3000]

The text consists of speeches of the built-in play in random order; every tenth has letters beyond ASCII. Each
conversion runs in a process of its own with an empty cache: the survey of the characters, then the tokens. Its memory
is the peak of the process above that of the process after its imports. The reader draws windows of several sizes,
first from a file that is not in the operating system's cache, then again.
"""

import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import data.corpus
from benchmarks.command import run_benchmark, save_results
from configs.command_line import resolve
from configs.experiment import configs_of
from data.play.grammar import play
from training import tracking

SHARES = {"characters": 1.0, "bytes": 1.0, "bpe:8192": 0.1}  # of the text's size
SHAPES = ((64, 32), (8, 256), (256, 256))  # windows and characters; the last is of `gpu`
SECONDS = 3.0  # per measurement of the reader


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        print(f"{'tokens':12} {'text':>8} {'MB/s':>6} {'seconds':>8} {'memory':>9}", flush=True)
        for tokens, share in SHARES.items():
            text = folder / f"{share}.txt"
            if not text.exists():
                write(text, share * options.megabytes)
            megabytes = text.stat().st_size / 1e6
            found = in_process(partial(convert, text, tokens, folder / tokens.replace(":", "-")))
            found |= {"megabytes": megabytes, "megabytes_per_second": megabytes / found["seconds"]}
            results[tokens] = found
            speed, memory = found["megabytes_per_second"], found["memory"] / 1e6
            row = f"{tokens:12} {megabytes:5,.0f} MB {speed:6.1f} {found['seconds']:8.0f} {memory:6.0f} MB"
            print(row, flush=True)
        results["reader"] = in_process(partial(read, folder / "1.0.txt", "characters", folder / "characters"))
        for shape, found in results["reader"].items():
            cold, cached = (f"{found[state] / 1e6:.1f}" for state in ("cold", "cached"))
            print(f"reader, windows of {shape}: {cold} million characters per second, {cached} once cached")
    save_results(path, megabytes=options.megabytes, **results)


def write(path: Path, megabytes: float) -> None:
    """Write a text of about this size."""
    speeches = play().split("\n\n")
    speeches[::10] = [speech.replace("a", "ä").replace("o", "œ") for speech in speeches[::10]]
    generator = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            file.write("\n\n".join(generator.choices(speeches, k=5_000)) + "\n\n")


def in_process(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a function that runs in a new process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(function, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        sys.exit("a measurement failed")
    finally:
        process.join()


def _send(function: Callable[[], dict[str, Any]], sender: Any) -> None:
    tracking.be_quiet()
    sender.send(function())


def convert(text: Path, tokens: str, cache: Path) -> dict[str, Any]:
    """Survey and convert a text with an empty cache: seconds, and bytes of memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    stored = data_of(text, tokens, cache).stored_tokens
    seconds = time.perf_counter() - began
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"seconds": seconds, "memory": memory, "tokens": len(stored.training.ids) + len(stored.validation.ids)}


def data_of(text: Path, tokens: str, cache: Path) -> Any:
    """The data branch of the config tree."""
    data.corpus.CACHE = cache
    return configs_of(resolve({"device": "cpu"}, {"data.corpus": str(text), "data.tokens": tokens})).data


def read(text: Path, tokens: str, cache: Path) -> dict[str, Any]:
    """Characters per second that the reader draws, for each shape: `cold` and `cached`."""
    torch.set_num_threads(1)
    results = {}
    for n_windows, seq_len in SHAPES:
        windows = data_of(text, tokens, cache).windows
        rates = {}
        for state in ("cold", "cached"):
            if state == "cold":
                forget(next(cache.rglob("training.ids")))
            began, n = time.perf_counter(), 0
            while (seconds := time.perf_counter() - began) < SECONDS:
                windows.draw(n_windows, seq_len)
                n += n_windows * seq_len
            rates[state] = n / seconds
        results[f"{n_windows} x {seq_len}"] = rates
    return results


def forget(path: Path) -> None:
    """Remove a file from the operating system's cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    folder = {"default": None, "help": "folder for the text and its cache (default: the system's temporary folder)"}
    run_benchmark(main, {"folder": folder}, ["folder"], megabytes=3_000.0)
