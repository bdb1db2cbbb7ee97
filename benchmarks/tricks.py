"""Published tricks on trial, and the ablation from the annotated recipe to the preset `quick`.

python -m benchmarks.tricks [NAME ...] [--seeds 3] [--steps 700]

Without a name, all tricks are tried; the name `ablation` stands for all changes of the ablation. Tricks and changes are
rows of benchmarks/recipes/tricks.yaml. Each row is compared with its base, trained with the same seeds. A trick's base
is `quick` or another trick; a change's base is the change before it.

Each row is compared twice. At equal steps, both train for --steps. At equal seconds, the row takes as many steps as fit
into the base's time: the number of steps follows from the ratio of their training seconds, the median over seeds. The
row is trained again with that number, unless it differs by at most 5%: then the same runs count for both. The
clock decides only this number: schedules depend on steps. The table shows the range of the ratios, because the speed of
a machine may change between two runs.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import recipe, run_benchmark
from benchmarks.report import Report, Results, by_variant
from benchmarks.trials import COMMON, last_losses, run_trials, trials_of
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve
from configs.keys import ConfigError, shortened
from runs.files import write_json

QUICK, ABLATION = "quick", "ablation"
SAME_TIME = 0.05  # the relative difference in time up to which two rows are equally fast
MULTIPLE = 5  # the steps of a row in its base's time are a multiple of this
LOSSES = {"loss.valid": "at equal steps", "loss.same_time": "at equal seconds"}


@dataclass(frozen=True)
class Row:
    """A recipe on trial: config keys on top of the preset `quick`."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    base: str = ""  # the name of the row that it is compared with
    source: str = ""
    claim: str = ""


def tricks() -> dict[str, Row]:
    """Every trick by name. Its keys come on top of those of its base."""
    found = {QUICK: Row()}
    for name, row in recipe("tricks")["tricks"].items():
        base = row.get("base", QUICK)
        found[name] = Row({**found[base].keys, **row["keys"]}, base, row["source"], row["claim"])
    return found


def ablation() -> dict[str, Row]:
    """Every change by name, with all keys that differ between the annotated recipe and `quick`.

    The gain of a change depends on the changes before it: another order would distribute the gains differently.
    """
    quick, annotated = (read_config(PRESETS / f"{name}.yaml") for name in (QUICK, "annotated"))
    # Budget and evaluations are the same for all; the stages set the masking rate.
    excluded = {*BUDGETS, *COMMON, "masking.masking_prob"}
    # Keys that quick sets and annotated leaves at their default must be set too, or recipes would inherit quick's.
    as_annotated, as_quick = resolve(annotated, {}), resolve(quick, {})
    keys = {key: as_annotated[key] for key in {**annotated, **quick} if key not in excluded}
    found: dict[str, Row] = {}
    for name, changes in recipe("tricks")[ABLATION].items():
        for key, value in changes.items():
            if key == "training.stages" and value != QUICK:
                keys[key] = [{**row, "seq_len": value} for row in as_quick[key]]
            else:
                keys[key] = as_quick[key] if value == QUICK else value
        found[name] = Row(dict(keys), base=list(found)[-1] if found else "")
    return found


def chosen(names: Sequence[str]) -> dict[str, Row]:
    """The rows with these names and their bases, each base before the rows that are compared with it.

    Raises ConfigError for an unknown name.
    """
    rows, changes = tricks(), ablation()
    wanted = [each for name in names or list(rows) for each in (changes if name == ABLATION else [name])]
    rows |= changes
    for name in wanted:
        if name not in rows:
            near = get_close_matches(name, [*rows, ABLATION], 1)
            hint = f"did you mean {near[0]}?" if near else "benchmarks/recipes/tricks.yaml lists them"
            raise ConfigError(f"unknown trick {shortened(name)!r}: {hint}")
    needed = {each for name in wanted for each in (rows[name].base, name)}
    found = {name: row for name, row in rows.items() if name in needed}
    return {name: row if row.base in found else replace(row, base="") for name, row in found.items()}


def relative_times(results: Results, name: str, base: str) -> list[float]:
    """The training time of a row divided by that of its base for as many steps, by seed."""
    return [run["seconds"] / results[base][seed]["seconds"] for seed, run in results[name].items()]


def steps_in_the_same_time(time: float, steps: int) -> int:
    """The steps that a row with this relative time can take while its base takes `steps`."""
    if abs(1 / time - 1) <= SAME_TIME:
        return steps
    return max(MULTIPLE, round(steps / time / MULTIPLE) * MULTIPLE)


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, and write the table and the figure."""
    rows, seconds_per_run = chosen(options.names), 20 + 0.1 * options.steps
    common = COMMON | {"training.max_seconds": None, "training.max_steps": options.steps}
    trials = trials_of({name: row.keys for name, row in rows.items()}, common, options.seeds)
    measured = run_trials(path, trials, last_losses, seconds_per_run)
    results = by_variant(measured["trials"])
    times = {name: relative_times(results, name, row.base or name) for name, row in rows.items()}
    steps = {name: steps_in_the_same_time(median(ratios), options.steps) for name, ratios in times.items()}
    again = [
        trial | {"keys": trial["keys"] | {"training.max_steps": steps[trial["variant"]]}}
        for trial in trials
        if steps[trial["variant"]] != options.steps
    ]
    if again:
        results |= by_variant(run_trials(path, again, last_losses, seconds_per_run)["trials"])
    for trial in measured["trials"]:
        trial["results"]["loss.same_time"] = results[trial["variant"]][trial["seed"]]["loss.valid"]
    write_json(path.with_suffix(".json"), measured | {"relative_times": times, "steps": steps}, indent=1)
    eager = {trial["variant"] for trial in measured["trials"] if not trial["compiled"]}
    report(rows, times, eager, options.steps).save(path, measured)


def report(rows: Mapping[str, Row], times: Mapping[str, Sequence[float]], eager: Set[str], steps: int) -> Report:
    """Each row against its base, at equal steps and at equal seconds; `eager` rows were not compiled."""
    return Report(
        title="Tricks on trial",
        note=f"A row's base with the changes of the row, on tiny Shakespeare. At equal steps: {steps} steps. At equal"
        f" seconds: the steps that a row can take while its base takes {steps}. The step time is relative to the"
        f" base's: median and range over seeds; rows within {SAME_TIME:.0%} of the base's speed keep {steps} steps.",
        base="the base",
        bases={name: row.base for name, row in rows.items() if row.base},
        losses=LOSSES,
        base_loss="loss.valid",
        verdicts={"better": "helps", "worse": "hurts"},
        columns={
            "step time": {
                name: f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}){' eager' * (name in eager)}"
                for name, ratios in times.items()
            },
            "base": {name: row.base for name, row in rows.items()},
            "source": {name: row.source for name, row in rows.items()},
            "claim": {name: row.claim for name, row in rows.items()},
        },
    )


if __name__ == "__main__":
    names = {
        "nargs": "*",
        "metavar": "NAME",
        "default": [],
        "help": "tricks, changes, or ablation (default: all tricks)",
    }
    run_benchmark(main, {"names": names}, seeds=3, steps=700)
