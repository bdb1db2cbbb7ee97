"""Minimal pairs: of two texts, a run should find the first one more probable (BLiMP, Warstadt et al.
2020)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from data.tasks.table import read_table
from data.text.files import CorpusError
from runs.files import write_json
from runs.schema import read_object
from runs.statistics import share_interval
from runs.terminal import in_one_line
from trained.load import Trained
from trained.score import scores_of
from trained.template import ids_of

COLUMNS = ("sentence_good", "sentence_bad")  # of BLiMP
RULES = {False: "PLL", True: "PLL-word-l2r"}
TIE = 1e-4  # nats; scores that differ by less are equal, up to rounding
Pairs = list[tuple[str, str]]


def read_pairs(path: Path) -> Pairs:
    """The pairs of a CSV, TSV or JSON lines file: its columns `sentence_good` and `sentence_bad`, or
    else its first two. Raises CorpusError."""
    rows = read_table(path)
    names = tuple(rows[0]) if rows else ()
    names = COLUMNS if {*COLUMNS} <= {*names} else names[:2]
    if len(names) < 2:
        raise CorpusError(f"{path} has no pairs: two columns of texts are needed")
    pairs: Pairs = []
    for number, row in enumerate(rows, start=1):
        good, bad = (row.get(name) for name in names)
        if not (isinstance(good, str) and isinstance(bad, str) and good and bad):
            raise CorpusError(
                f"row {number} of {path}: {' and '.join(names)} must be texts"
            )
        pairs.append((good, bad))
    read = " and ".join(map(in_one_line, names))
    print(f"{in_one_line(path.name)}: reads the columns {read}", flush=True)
    return pairs


def read_files(paths: Sequence[Path]) -> dict[str, Pairs]:
    """The pairs of each file by its name. Raises CorpusError."""
    files: dict[str, Pairs] = {}
    for path in paths:
        if path.name in files:
            raise CorpusError(f"--pairs: two files are called {path.name}: rename one")
        files[path.name] = read_pairs(path)
    return files


def accuracy(trained: Trained, pairs: Pairs, within_words: bool) -> dict[str, Any]:
    """The share of the pairs whose first text has the higher pseudo-log-likelihood, with its 95%
    interval. Equal scores are wrong."""
    texts = [ids_of(text, trained.vocabulary) for pair in pairs for text in pair]
    scores = torch.tensor(scores_of(trained, texts, within_words)).view(-1, 2)
    gaps = scores[:, 0] - scores[:, 1]
    return summary(int((gaps > TIE).sum()), len(gaps), int((gaps.abs() <= TIE).sum()))


def summary(n_right: int, n_pairs: int, n_ties: int) -> dict[str, Any]:
    low, high = share_interval(n_right, n_pairs)
    return {
        "right": n_right,
        "pairs": n_pairs,
        "ties": n_ties,
        "accuracy": n_right / n_pairs,
        "interval": [low, high],
    }


def measure_pairs(
    trained: Trained, files: Mapping[str, Pairs], within_words: bool
) -> None:
    """Print the accuracy of a run on each file and on all pairs, and add them to `pairs.json` in
    its folder."""
    path = trained.run.results / "pairs.json"
    known = read_object(path, {str: dict}) if path.exists() else {}
    rule = RULES[within_words]
    print(f"\n{trained.run.name}")
    print(f"  {rule:32}  pairs  accuracy  95% interval     ties")
    results: dict[str, Any] = {}
    for name, pairs in files.items():
        results[name] = accuracy(trained, pairs, within_words)
        print_row(name, results[name])
    if len(results) > 1:
        counts = [
            sum(each[name] for each in results.values())
            for name in ("right", "pairs", "ties")
        ]
        print_row("all", summary(*counts))
    write_json(path, known | {rule: known.get(rule, {}) | results}, indent=1)


def print_row(name: str, result: dict[str, Any]) -> None:
    low, high = result["interval"]
    print(
        f"  {in_one_line(name)[-32:]:32} {result['pairs']:6,} {result['accuracy']:9.3f}"
        f"  {low:.3f} to {high:.3f} {result['ties']:7,}",
        flush=True,
    )
