"""Published tricks on trial: changes of the preset `quick`.

python -m benchmarks.tricks [NAME ...] [--seeds 3] [--steps 700]

Without a name, all rows of benchmarks/recipes/tricks.yaml are tried. Each is compared twice with
`quick`, trained with the same seeds. At equal steps, both train for --steps. At equal seconds, the
row takes as many steps as fit into the time of `quick`: their number follows from the ratio of the
training seconds, the median over seeds. The row is trained again with that number, unless it
differs by at most 5%: then the same runs count for both. The clock decides only this number:
schedules depend on steps. The table shows the range of the ratios, because the speed of a machine
may change between two runs.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import recipe, run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import COMMON, last_losses, run_trials, trials_of
from configs.keys import ConfigError

BASE = "quick"
SAME_TIME = 0.05  # the relative difference in time up to which two rows are equally fast
MULTIPLE = 5  # the steps of a row in the time of `quick` are a multiple of this
LOSSES = {"loss.valid": "at equal steps", "loss.same_time": "at equal seconds"}


def chosen(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The tricks with these names; all without a name. Raises ConfigError for an unknown name."""
    tricks = recipe("tricks")
    for name in names:
        if name not in tricks:
            near = get_close_matches(name, tricks, 1)
            hint = (
                f"did you mean {near[0]}?" if near else "benchmarks/recipes/tricks.yaml lists them"
            )
            raise ConfigError(f"unknown trick {name!r}: {hint}")
    return {name: row for name, row in tricks.items() if not names or name in names}


def steps_in_the_same_time(time: float, steps: int) -> int:
    """The steps that a row with this relative time can take while `quick` takes `steps`."""
    if abs(1 / time - 1) <= SAME_TIME:
        return steps
    return max(MULTIPLE, round(steps / time / MULTIPLE) * MULTIPLE)


def main(options: Namespace, path: Path) -> None:
    tricks = chosen(options.names)
    seconds_per_run = 20 + 0.1 * options.steps
    common = COMMON | {"training.max_seconds": None, "training.max_steps": options.steps}
    variants = {BASE: {}} | {name: row["keys"] for name, row in tricks.items()}
    trials = trials_of(variants, common, options.seeds)
    rows = run_trials(path, trials, last_losses, seconds_per_run)
    results = by_variant(rows)

    times = {}
    steps = {}
    for name, runs in results.items():
        times[name] = [
            run["seconds"] / results[BASE][seed]["seconds"] for seed, run in runs.items()
        ]
        steps[name] = steps_in_the_same_time(median(times[name]), options.steps)
    again = []
    for trial in trials:
        n = steps[trial["variant"]]
        if n != options.steps:
            again.append(trial | {"keys": trial["keys"] | {"training.max_steps": n}})
    same_time = dict(results)
    if again:
        same_time |= by_variant(run_trials(path, again, last_losses, seconds_per_run))
    for row in rows:
        row["results"]["loss.same_time"] = same_time[row["variant"]][row["seed"]]["loss.valid"]

    columns = {
        "step time": {
            name: f"{median(x):.2f} ({min(x):.2f} to {max(x):.2f})" for name, x in times.items()
        },
        "source: claim": {name: f"{row['source']}: {row['claim']}" for name, row in tricks.items()},
    }
    table = compared(results, dict.fromkeys(tricks, BASE), LOSSES, columns)
    save_results(path, table, relative_times=times, steps=steps, trials=rows)


if __name__ == "__main__":
    names = {"nargs": "*", "metavar": "NAME", "default": [], "help": "tricks (default: all)"}
    run_benchmark(main, {"names": names}, seeds=3, steps=700)
