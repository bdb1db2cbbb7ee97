"""Sequential trials against fixed plans, by simulation.

python -m benchmarks.sequential

2,000 trials of at most 20 pairs per row, with normal differences of a given spread between pairs.
How often is a difference called, found, and covered by the interval at the end of the trial, and
after how many pairs? A fixed plan trains a number of pairs and takes Student's t-test once; the
table has the smallest number with which it finds a difference of 0.02 at least as often. The
spreads are those of `quick` at equal steps in 35 changes (tricks.json, one core): the median, the
root mean square, and a larger one.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.command import run_benchmark, save_results
from runs.sequential import FIRST_LOOK, Interval, critical_values, interval
from runs.statistics import paired_difference

N_TRIALS = 2_000
MOST = 20
SMALLEST = 0.01
DIFFERENCE = 0.02
SPREADS = (0.003, 0.009, 0.015)
DECIDED = ("better", "worse")


class End(NamedTuple):
    """The end of a simulated trial: its differences, all of those that it might have had, and its
    answer."""

    differences: np.ndarray
    known: Interval
    answer: str | None


def main(options: Namespace, path: Path) -> None:
    critical = critical_values(MOST)
    table = []
    for spread in SPREADS:
        null = list(simulated(0.0, spread, critical))
        ends = list(simulated(DIFFERENCE, spread, critical))
        found = [end for end in ends if end.answer == "worse"]
        n_pairs = np.mean([end.known.n_pairs for end in ends])
        n_fixed = fixed_plan(ends, len(found))
        row = {
            "spread": f"{spread}",
            "called without a difference": share(null, DECIDED),
            "no difference, rightly": share(null, ("no difference",)),
            "a difference of 0.02 is found": share(ends, ("worse",)),
            "pairs until then": f"{n_pairs:.1f}",
            "pairs of a fixed plan": f"{n_fixed}",
            "ratio": f"{n_pairs / n_fixed:.2f}",
            "covered": f"{min(coverage(null, 0.0), coverage(ends, DIFFERENCE)):.1%}",
        }
        table.append(row)
    save_results(path, table)


def simulated(difference: float, spread: float, critical: np.ndarray) -> Iterator[End]:
    rng = np.random.default_rng(0)
    for differences in rng.normal(difference, spread, (N_TRIALS, MOST)):
        for n_pairs in range(FIRST_LOOK, MOST + 1):
            known = interval(differences[:n_pairs], critical)
            answer = known.answer(SMALLEST)
            if answer:
                break
        yield End(differences, known, answer)


def fixed_plan(ends: list[End], n_found: int) -> int:
    """The smallest number of pairs with which a fixed plan finds as many differences."""
    for n_pairs in range(2, MOST):
        found = 0
        for end in ends:
            test = paired_difference(end.differences[:n_pairs], np.zeros(n_pairs))
            found += test.verdict == "worse"
        if found >= n_found:
            return n_pairs
    return MOST


def share(ends: list[End], answers: tuple[str, ...]) -> str:
    return f"{np.mean([end.answer in answers for end in ends]):.1%}"


def coverage(ends: list[End], difference: float) -> float:
    covered = [end.known.low <= difference <= end.known.high for end in ends]
    return float(np.mean(covered))


if __name__ == "__main__":
    run_benchmark(main)
