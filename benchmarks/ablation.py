"""From the annotated recipe to the preset `quick`, one change at a time.

python -m benchmarks.ablation [--seeds 3] [--seconds 90] [--begin CHANGE]

All recipes are trained for the same time, so a change pays by more characters per second or by learning more from each.
A recipe is compared with the one before it, by seed. The gain of a change depends on the changes before it: another
order would distribute the gains differently. A model that has only seen windows of 32 characters may fail on the
protocol's 256, so the loss in windows of the trained length is shown too.
"""

from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.command import recipe, run_benchmark
from benchmarks.report import Report
from benchmarks.trials import COMMON, LOSSES, last_losses, run_trials, trials_of
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve

CHANGES: dict[str, dict[str, Any]] = recipe("ablation")


def recipes() -> dict[str, dict[str, Any]]:
    """Every change with all keys of its recipe, on top of the preset `quick`."""
    quick, annotated = (read_config(PRESETS / f"{name}.yaml") for name in ("quick", "annotated"))
    # Budget and evaluations are the same for all; the stages set the masking rate.
    excluded = {*BUDGETS, *COMMON, "masking.masking_prob"}
    # Keys that quick sets and annotated leaves at their default must be set too, or recipes would inherit quick's.
    as_annotated = resolve(annotated, {})
    keys = {key: as_annotated[key] for key in {**annotated, **quick} if key not in excluded}
    found = {}
    for name, changes in CHANGES.items():
        for key, value in changes.items():
            if key == "training.stages" and value != "quick":
                keys[key] = [{**row, "seq_len": value} for row in quick[key]]
            else:
                keys[key] = quick[key] if value == "quick" else value
        found[name] = dict(keys)
    return found


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, and write the table and the figure."""
    names = list(CHANGES)[list(CHANGES).index(options.begin) :]
    keys = COMMON | {"training.max_seconds": options.seconds}
    trials = trials_of({name: recipes()[name] for name in names}, keys, options.seeds)
    measured = run_trials(path, trials, last_losses, seconds_per_run=options.seconds + 20)
    report(names, options.seconds).save(path, measured)


def report(names: Sequence[str], seconds: float) -> Report:
    """Each variant against the one before it."""
    return Report(
        title="Ablation",
        note=f"From the recipe `{names[0]}` to the preset `quick`, one change per row on top of those above it:"
        f" {seconds:g} seconds of training on tiny Shakespeare.",
        base="the row above",
        bases={name: before for before, name in pairwise(names)},
        losses=LOSSES,
    )


if __name__ == "__main__":
    names = list(CHANGES)
    begin = {"metavar": "CHANGE", "choices": names, "default": names[0], "help": "leave out the changes before it"}
    run_benchmark(main, {"begin": begin}, seeds=3, seconds=90.0)
