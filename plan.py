"""Plan a run: which model to train, for how long, and which loss to expect, from small runs on this
machine.

python plan.py data.corpus=PATH --seconds 3600       the lowest loss within an hour of training
python plan.py data.corpus=PATH --chars 1e9          with a billion characters
python plan.py data.corpus=PATH --loss 0.9           the least time to a loss
python plan.py data.corpus=PATH --seconds 3600 --write plan.yaml
python experiment.py --config plan.yaml

Other keys of experiment.py may follow. docs/scaling.md explains the law behind the predictions.
"""

import os
import shlex
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs.command_line.command import SETTINGS, Command, parse, read_plan, resolve
from configs.command_line.program import OneLineParser, run_main
from configs.command_line.scripts import number, run_script
from configs.memory import least_bytes
from planning.law import Interval, Law, fit
from runs.errors import InputError
from runs.files import to_yaml, write_atomically

LADDER_SECONDS = 60.0  # without --seconds
LADDER_SHARE = 0.1  # of --seconds
LENGTHS = np.geomspace(1e5, 1e13, 81)  # of runs that may reach a loss


class Choice(NamedTuple):
    """A possible run."""

    shape: Any  # `planning.ladder.Shape`
    n_chars: int
    predicted: Interval


def main(arguments: list[str]) -> int:
    parser = OneLineParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    budget = parser.add_mutually_exclusive_group(required=True)

    for unit, words in (
        ("seconds", "training time"),
        ("chars", "characters of training"),
    ):
        limit = SETTINGS[f"training.max_{unit}"].key.high
        budget.add_argument(
            f"--{unit}", type=number(float, 1, limit), metavar="N", help=words
        )

    budget.add_argument(
        "--loss", type=number(float, 0.001), metavar="X", help="loss.valid to reach"
    )
    ladder = f"time for measuring and the small runs (default: a tenth of --seconds, or {LADDER_SECONDS:.0f} s)"
    parser.add_argument(
        "--ladder-seconds", type=number(float, 1), metavar="N", help=ladder
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE.yaml",
        help="write the plan for experiment.py --config",
    )
    parser.add_argument(
        "keys", nargs="*", metavar="key=value", help="keys of experiment.py"
    )
    return run_script(parser, arguments, plan)


def plan(options: Namespace) -> None:
    check_file(options.write)
    command = parse(options.keys)
    from configs.experiment import configs_of
    from planning.ladder import choose_threads, climb, measured_shapes, rungs, say
    from training.tracking import be_quiet

    check_keys(command)
    be_quiet()
    began = time.monotonic()
    values = command.values
    data = configs_of(values).data
    corpus = data.loaded
    floor = known_floor(data)

    if options.loss and floor and options.loss <= floor:
        raise InputError(
            f"the lowest possible loss on this text is {floor:.3f}: raise --loss"
        )

    seconds = seconds_of_ladder(options)
    n_text = len(data.training_ids)
    n_read = data.validation_set.windows.numel()
    measuring = time.monotonic()
    choose_threads(values, corpus)
    shapes = measured_shapes(values, corpus, seconds)
    spent = time.monotonic() - measuring
    ladder = rungs(shapes, seconds, values, n_read, spent)
    runs, rows = climb(values, corpus, ladder)
    law = fit(runs, n_text=n_text, floor=floor)

    last = rows[-1]
    speed = last["chars"] / last["seconds"]
    faster = speed / ladder[len(runs) - 1].shape.chars_per_second
    faster *= speedup(values, corpus, chosen(law, shapes, options).shape)
    shapes = [
        shape._replace(chars_per_second=faster * shape.chars_per_second)
        for shape in shapes
    ]
    choice = chosen(law, shapes, options)

    say(f"\n{len(runs)} runs and a fit in {time.monotonic() - began:.0f} s")
    print_plan(choice, law, values)
    curve = course(law, choice, rows)

    if len(curve) > 1:  # else the longest rung was left out
        limit = curve[len(curve) // 2 - 1]["high"]
        say(f"stop the run if loss.valid is above {limit:.3f} at half of its budget")

    if options.write:
        # a run that is faster than planned uses all of its time
        budget = {
            "training.max_chars": None if options.seconds else choice.n_chars,
            "training.max_seconds": options.seconds,
        }
        keys = resolve(values, choice.shape.keys | budget)
        content = keys | {"plan": {"sha256": corpus.sha256, "curve": curve}}
        write_atomically(options.write, f"{to_yaml(content)}\n".encode())
        say(f"python experiment.py --config {shlex.quote(str(options.write))}")


def seconds_of_ladder(options: Namespace) -> float:
    if options.ladder_seconds:
        return options.ladder_seconds
    return LADDER_SHARE * options.seconds if options.seconds else LADDER_SECONDS


def check_file(path: Path | None) -> None:
    """Raise InputError if --write cannot create the file, or would replace one that is not a plan."""
    if path is None:
        return
    if os.path.isdir(path) or not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: name a file in a folder that exists")
    try:
        path.stat()
    except FileNotFoundError:
        return
    except OSError as error:  # a name that is too long
        raise InputError(
            f"cannot write {path} ({error.strerror}): name another file"
        ) from error
    try:
        is_plan = read_plan(path) is not None
    except InputError:
        is_plan = False

    if not is_plan:
        raise InputError(
            f"--write {path} would replace a file that is not a plan: name another file"
        )


def check_keys(command: Command) -> None:
    """Raise InputError for keys that the plan itself sets."""
    from planning.ladder import shape_keys

    for key in command.overridden:
        if key.startswith("training.max_") or key in shape_keys(2, 1):
            reason = "plan.py chooses the size of the model and the budget itself"
            raise InputError(f"{key}: {reason}: leave the key out")

    if command.values["initial_weights"]:
        reason = "the small runs of a plan start from random weights"
        raise InputError(f"initial_weights: {reason}: leave the key out")


def known_floor(data: Any) -> float | None:
    """The Bayes-optimal loss on the play; None for other texts and tokens."""
    from data.references.losses import mean_losses, window_losses, without_counting

    if data.loaded.automaton is None or without_counting(data.vocabulary, data.loaded):
        return None
    return mean_losses(window_losses(data.loaded))["floor"]


def speedup(values: dict[str, Any], corpus: Any, shape: Any) -> float:
    """The speed of a compiled or recorded step, relative to the speed of an eager one."""
    from planning.ladder import EAGER, is_compiled, measured

    if not is_compiled(values):
        return 1.0
    compiled = measured(values, corpus, shape.keys, n_times=3)
    eager = measured(values, corpus, shape.keys, n_times=3, **EAGER)
    return compiled.chars_per_second / eager.chars_per_second


def chosen(law: Law, shapes: Sequence[Any], options: Namespace) -> Choice:
    """The run within the budget with the lowest expected loss. If a loss is asked for, the budget
    is the least time in which some run reaches it by half of the laws.
    """
    seconds = options.seconds
    if options.loss:
        seconds = min(seconds_to(law, shape, options.loss) for shape in shapes)
    if seconds == np.inf:
        raise InputError(
            f"none of the models is expected to reach {options.loss:g}: raise --loss or --ladder-seconds"
        )

    choices = []
    for shape in shapes:
        n_chars = round(options.chars or seconds * shape.chars_per_second)
        choices.append(Choice(shape, n_chars, law.predict(shape.n_weights, n_chars)))

    return min(
        choices, key=lambda choice: law.expected(choice.shape.n_weights, choice.n_chars)
    )


def seconds_to(law: Law, shape: Any, loss: float) -> float:
    """The training time after which half of the laws are at or below a loss."""
    excess, _ = law.excess_and_deviation(shape.n_weights, LENGTHS)
    expected = np.median(law.floors[:, None] + excess, axis=0)
    length = np.exp(np.interp(-loss, -expected, np.log(LENGTHS), right=np.inf))
    return float(length) / shape.chars_per_second


def course(
    law: Law, choice: Choice, rows: Sequence[dict[str, Any]]
) -> list[dict[str, float]]:
    """The predicted losses within the run: its excess falls as that of the longest run of the
    ladder did, whose evaluations are `rows`."""
    floor = float(np.median(law.floors))
    last = rows[-1]
    curve = []

    for row in rows:
        share = (row["loss.valid"] - floor) / (last["loss.valid"] - floor)
        planned = {"chars": round(row["chars"] / last["chars"] * choice.n_chars)}
        for name, loss in choice.predicted._asdict().items():
            planned[name] = floor + (loss - floor) * share
        curve.append(planned)

    return curve


def print_plan(choice: Choice, law: Law, values: dict[str, Any]) -> None:
    """A table of the run and of others with half and twice its budget, and whether the text or the
    budget limits the loss."""
    shape = choice.shape
    size = f"{shape.name:>17}"
    memory = f"{least_bytes(values | shape.keys) / 1e9:>6,.1f} GB"
    print(
        f"{'layers x d_model':>28} {'loss.valid (80%)':>23} {'characters':>12} {'epochs':>8} {'memory':>9} time"
    )
    budgets = {
        "half": choice.n_chars // 2,
        "the budget": choice.n_chars,
        "twice": 2 * choice.n_chars,
    }

    for name, n_chars in budgets.items():
        predicted = law.predict(shape.n_weights, n_chars).words(3)
        chars = f"{n_chars / 1e6:>10,.1f} M {n_chars / law.n_text:>8,.1f}"
        seconds = f"{n_chars / shape.chars_per_second:,.0f} s"
        print(f"{name:10} {size} {predicted:>23} {chars} {memory} {seconds}")

    loss = choice.predicted.loss
    by_budget = loss - law.predict(shape.n_weights, budgets["twice"]).loss
    more_text = replace(law, n_text=2 * law.n_text)
    by_text = loss - more_text.predict(shape.n_weights, choice.n_chars).loss
    limit = "text" if by_text > by_budget else "budget"
    print(
        f"the {limit} is the limit: twice the budget gives {by_budget:.3f} less, twice the text {by_text:.3f}"
    )


if __name__ == "__main__":
    run_main(main)
