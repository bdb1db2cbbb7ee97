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
from pathlib import Path
from statistics import median

from benchmarks.command import chosen, recipe, run_benchmark, save_results
from benchmarks.report import by_variant, compared
from benchmarks.trials import Trial, last_losses, run_trials

BASE = "quick"
# the relative difference in time up to which two rows are equally fast
SAME_TIME = 0.05
MULTIPLE = 5  # the steps of a row in the time of `quick` are a multiple of this
LOSSES = {"loss.valid": "at equal steps", "loss.same_time": "at equal seconds"}


def steps_in_the_same_time(time: float, steps: int) -> int:
    """The steps that a row with this relative time can take while `quick` takes `steps`."""
    if abs(1 / time - 1) <= SAME_TIME:
        return steps
    return max(MULTIPLE, round(steps / time / MULTIPLE) * MULTIPLE)


def main(options: Namespace, path: Path) -> None:
    all_tricks = recipe("tricks")
    tricks = {
        name: all_tricks[name] for name in chosen("trick", options.names, all_tricks)
    }

    def run(steps_of: dict[str, int]) -> list[Trial]:
        variants = {}
        for name, steps in steps_of.items():
            budget = {"training.max_seconds": None, "training.max_steps": steps}
            variants[name] = budget if name == BASE else budget | tricks[name]["keys"]
        return run_trials(
            path, variants, options.seeds, last_losses, 20 + 0.1 * options.steps
        )

    rows = run(dict.fromkeys([BASE, *tricks], options.steps))
    results = by_variant(rows)
    times = {}
    steps = {}

    for name, runs in results.items():
        base = results[BASE]
        times[name] = [
            run["seconds"] / base[seed]["seconds"] for seed, run in runs.items()
        ]
        steps[name] = steps_in_the_same_time(median(times[name]), options.steps)

    changed = {name: n for name, n in steps.items() if n != options.steps}
    same_time = results | by_variant(run(changed) if changed else [])

    for row in rows:
        row["results"]["loss.same_time"] = same_time[row["variant"]][row["seed"]][
            "loss.valid"
        ]

    columns = {
        "step time": {
            name: f"{median(x):.2f} ({min(x):.2f} to {max(x):.2f})"
            for name, x in times.items()
        },
        "source: claim": {
            name: f"{row['source']}: {row['claim']}" for name, row in tricks.items()
        },
    }
    table = compared(results, dict.fromkeys(tricks, BASE), LOSSES, columns)
    save_results(path, table, relative_times=times, steps=steps, trials=rows)


if __name__ == "__main__":
    names = {
        "nargs": "*",
        "metavar": "NAME",
        "default": [],
        "help": "tricks (default: all)",
    }
    run_benchmark(main, seeds=3, steps=700, names=names)
