"""The table of compared training runs.

Runs are compared by seed: each variant's loss minus its base's with the same seed.
runs/statistics.py defines a tie.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.command import Table
from runs.statistics import Difference, paired_difference, standard_error, with_error

# variant -> seed -> results of the run
Results = Mapping[str, Mapping[int, Mapping[str, Any]]]


def compared(
    results: Results,
    base: str,
    losses: Mapping[str, str],
    columns: Mapping[str, Mapping[str, str]],
) -> Table:
    """One row per variant: its losses, each with the difference from its base, then other columns.

    `base` is the variant that the others are compared with, empty for none. `losses` maps the losses
    in the results to headings; `columns` maps further headings to the text of each variant.
    """
    table = []

    for variant, runs in results.items():
        row = {"": variant}
        for loss, heading in losses.items():
            values = [run[loss] for run in runs.values()]
            row[heading] = with_error(f"{fmean(values):.3f}", standard_error(values))
            change = difference(results, loss, variant, base)
            if change:
                words = with_error(f"{change.mean:+.3f}", change.stderr)
                row[heading] += f" ({words}, {change.verdict})"
        row |= {heading: texts.get(variant, "") for heading, texts in columns.items()}
        row["characters"] = (
            f"{median(run['chars'] for run in runs.values()) / 1e6:.2f} M"
        )
        table.append(row)

    return table


def difference(
    results: Results, loss: str, variant: str, base: str
) -> Difference | None:
    """The loss of a variant minus that of its base, over seeds that both have; None if the two are
    not compared."""
    own = results[variant]
    other = results.get(base, {})
    pairs = [(own[seed][loss], other[seed][loss]) for seed in own if seed in other]
    if base == variant or not pairs:
        return None
    return paired_difference(*zip(*pairs, strict=True))


def by_variant(
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Results of trials, by variant and seed."""
    results: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        results.setdefault(row["variant"], {})[row["seed"]] = row["results"]
    return results
