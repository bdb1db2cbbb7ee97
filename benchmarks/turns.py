"""Candidates measured in turns, so that disturbances of the machine affect all of them equally."""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import in_minutes, save_results
from training import tracking

Measures = Mapping[str, float]  # by name; the name has the unit
Candidates = Mapping[str, Callable[[], Measures]]


def compare(
    path: Path,
    groups: Mapping[str, Candidates],
    rounds: int,
    *,
    base: str = "",
    warmup: int = 0,
    **facts: Any,
) -> None:
    """Measure the candidates of each group in turns, print the table of medians, and write it with
    all data as JSON.

    Each call of a candidate returns its measures. The first of them, a speed, is compared with that
    of the candidate `base` in the same round: the ratio is the median over rounds, with its
    quartiles. `facts` are written too.
    """
    table = []
    turns = {}

    for group, candidates in groups.items():
        results = turns[group] = take_turns(candidates, rounds, warmup)
        for name, measured in results.items():
            row = {"": f"{group}: {name}"}
            for measure in measured[0]:
                row[measure] = in_words(np.median([each[measure] for each in measured]))
            if base:
                speed = next(iter(measured[0]))
                pairs = zip(measured, results[base], strict=True)
                ratios = [own[speed] / other[speed] for own, other in pairs]
                low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75))
                words = (
                    "1" if name == base else f"{middle:.2f} ({low:.2f} to {high:.2f})"
                )
                row[f"ratio to {base} (quartiles)"] = words
            table.append(row)

    save_results(path, table, **facts, rounds=rounds, turns=turns)


def in_words(value: float) -> str:
    """A number with three digits, or more if they stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def take_turns(
    candidates: Candidates, rounds: int, warmup: int = 0
) -> dict[str, list[Measures]]:
    """Call every candidate once per round and return its results, without those of the first
    `warmup` rounds.

    Each round begins with another candidate. Prints how long it will take once the first round is
    over.
    """
    names = list(candidates)
    results: dict[str, list[Measures]] = {name: [] for name in names}
    began = time.perf_counter()

    for i in range(warmup + rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(candidates[name]())
        if i == 0 and warmup + rounds > 1:
            seconds = (time.perf_counter() - began) * (warmup + rounds - 1)
            print(f"{in_minutes(seconds)} to go", flush=True)

    return {name: measured[warmup:] for name, measured in results.items()}


def in_process(function: Callable[..., Measures], *arguments: Any) -> Measures:
    """The result of a function that runs in a new process."""
    new = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, new, initializer=tracking.be_quiet) as pool:
        return pool.submit(function, *arguments).result()
