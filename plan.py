"""Plan a run: which model to train, for how long, and which loss to expect, from small runs on this
machine.

python plan.py data.corpus=PATH --seconds 3600       the lowest loss within an hour of training
python plan.py data.corpus=PATH --chars 1e9          with a billion characters python plan.py
data.corpus=PATH --loss 0.9           the least time to a loss python plan.py data.corpus=PATH
--seconds 3600 --write plan.yaml && python experiment.py --config plan.yaml

Other keys of experiment.py may follow. docs/scaling.md explains the law behind the predictions.
"""

import shlex
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs.command_line.command import SETTINGS, parse, resolve
from configs.command_line.program import OneLineParser, run_main
from configs.command_line.scripts import number, run_script
from configs.memory import least_bytes
from planning.law import Interval, Law, fit
from runs.errors import InputError
from runs.files import to_yaml, write_atomically

LADDER_SECONDS, LADDER_SHARE = 60.0, 0.1  # without --seconds; of --seconds
LENGTHS = np.geomspace(1e5, 1e13, 321)  # of runs that may reach a loss


class Choice(NamedTuple):
    """A possible run."""

    shape: Any  # `planning.ladder.Shape`
    n_chars: int
    predicted: Interval


def main(arguments: list[str]) -> int:
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    budget = parser.add_mutually_exclusive_group(required=True)
    longest, most = (SETTINGS[f"training.max_{unit}"].key.high for unit in ("seconds", "chars"))
    budget.add_argument(
        "--seconds", type=number(float, 1, longest), metavar="N", help="training time"
    )
    budget.add_argument(
        "--chars", type=number(float, 1, most), metavar="N", help="characters of training"
    )
    budget.add_argument(
        "--loss", type=number(float, 0.001), metavar="X", help="loss.valid to reach"
    )
    ladder = f"time for measuring and the small runs (default: a tenth of --seconds, or {LADDER_SECONDS:.0f} s)"
    parser.add_argument("--ladder-seconds", type=number(float, 1), metavar="N", help=ladder)
    parser.add_argument(
        "--write", type=Path, metavar="FILE.yaml", help="write the plan for experiment.py --config"
    )
    parser.add_argument("keys", nargs="*", metavar="key=value", help="keys of experiment.py")
    return run_script(parser, arguments, plan)


def plan(options: Namespace) -> None:
    if options.write and (options.write.is_dir() or not options.write.absolute().parent.is_dir()):
        raise InputError(f"cannot write {options.write}: name a file in a folder that exists")
    command, began = parse(options.keys), time.monotonic()
    values = command.values
    from configs.experiment import configs_of
    from planning.ladder import EAGER, climb, measured, measured_shapes, rungs, say, shape_keys
    from training.tracking import be_quiet

    if own := [
        key
        for key in command.overridden
        if key.startswith("training.max_") or key in shape_keys(2, 1)
    ]:
        raise InputError(
            f"{own[0]}: plan.py chooses the size of the model and the budget itself: leave the key out"
        )
    if values["initial_weights"]:
        raise InputError(
            "initial_weights: the small runs of a plan start from random weights: leave the key out"
        )
    be_quiet()
    data = configs_of(values).data
    corpus, n_text, n_read = data.loaded, len(data.training_ids), data.validation.windows.numel()
    floor = known_floor(data)
    if options.loss and floor and options.loss <= floor:
        raise InputError(f"the lowest possible loss on this text is {floor:.3f}: raise --loss")
    seconds = options.ladder_seconds or LADDER_SHARE * (
        options.seconds or LADDER_SECONDS / LADDER_SHARE
    )
    measuring = time.monotonic()
    shapes = measured_shapes(values, corpus, seconds)
    spent = time.monotonic() - measuring
    is_compiled = values["training.compile"] or values["device"].startswith("cuda")  # or recorded
    ladder = rungs(shapes, seconds, values["training.chars_per_step"], n_read, spent, is_compiled)
    runs, rows = climb(values, corpus, ladder)
    law = fit(runs, n_text=n_text, floor=floor)
    # in a run
    faster = rows[-1]["chars"] / rows[-1]["seconds"] / ladder[len(runs) - 1].shape.chars_per_second
    if is_compiled:
        again = partial(
            measured, values, corpus, chosen(law, shapes, options).shape.keys, n_times=3
        )
        faster *= again().chars_per_second / again(**EAGER).chars_per_second
    shapes = [shape._replace(chars_per_second=faster * shape.chars_per_second) for shape in shapes]
    choice = chosen(law, shapes, options)
    lengths = (choice.n_chars // 2, 2 * choice.n_chars)
    half, twice = (
        choice._replace(n_chars=n, predicted=law.predict(choice.shape.n_weights, n))
        for n in lengths
    )
    say(f"\n{len(runs)} runs and a fit in {time.monotonic() - began:.0f} s")
    print_plan({"half": half, "the budget": choice, "twice": twice}, law, values)
    curve = course(
        law, choice, [(row["chars"] / rows[-1]["chars"], row["loss.valid"]) for row in rows]
    )
    for row in curve[len(curve) // 2 - 1 : -1][:1]:  # at half, if the longest rung was trained
        say(f"stop the run if loss.valid is above {row['high']:.3f} at half of its budget")
    if options.write:
        # a run that is faster than planned uses all of its time
        n_chars = None if options.seconds else choice.n_chars
        limits = {
            "training.max_chars": n_chars,
            "training.max_seconds": options.seconds,
            "plan.curve": curve,
        }
        write_atomically(
            options.write, f"{to_yaml(resolve(values, choice.shape.keys | limits))}\n".encode()
        )
        say(f"python experiment.py --config {shlex.quote(str(options.write))}")


def known_floor(data: Any) -> float | None:
    """The Bayes-optimal loss on the play; None for other texts and tokens."""
    from data.references.losses import mean_loss, window_losses, without_counting

    if data.loaded.automaton is None or without_counting(data.vocabulary, data.loaded):
        return None
    return mean_loss(window_losses(data.loaded)["floor"])


def chosen(law: Law, shapes: Sequence[Any], options: Namespace) -> Choice:
    """The run within the budget with the lowest expected loss. If a loss is asked for, the budget
    is the least time in which some run reaches it by half of the laws.
    """
    seconds = options.seconds or (
        options.loss and min(seconds_to(law, shape, options.loss) for shape in shapes)
    )
    if seconds == np.inf:
        raise InputError(
            f"none of the models is expected to reach {options.loss:g}: raise --loss or --ladder-seconds"
        )
    lengths = [round(options.chars or seconds * shape.chars_per_second) for shape in shapes]
    found = [
        Choice(s, n, law.predict(s.n_weights, n)) for s, n in zip(shapes, lengths, strict=True)
    ]
    return min(found, key=lambda choice: law.expected(choice.shape.n_weights, choice.n_chars))


def seconds_to(law: Law, shape: Any, loss: float) -> float:
    """The training time after which half of the laws are at or below a loss."""
    expected = np.median(
        law.floors[:, None] + law.excess_and_deviation(shape.n_weights, LENGTHS)[0], axis=0
    )
    length = np.exp(np.interp(-loss, -expected, np.log(LENGTHS), right=np.inf))
    return float(length) / shape.chars_per_second


def course(
    law: Law, choice: Choice, curve: Sequence[tuple[float, float]]
) -> list[dict[str, float]]:
    """The predicted losses within the run: its excess falls as that of the longest run of the
    ladder did."""
    floor, last = float(np.median(law.floors)), curve[-1][1]
    rows = []
    for share, loss in curve:
        predicted = [
            floor + (each - floor) * (loss - floor) / (last - floor) for each in choice.predicted
        ]
        rows.append(
            {"chars": round(share * choice.n_chars)}
            | dict(zip(Interval._fields, predicted, strict=True))
        )
    return rows


def print_plan(choices: dict[str, Choice], law: Law, values: dict[str, Any]) -> None:
    """A table of the runs, and whether the text or the budget limits their loss."""
    print(
        f"{'layers x d_model':>28} {'loss.valid (80%)':>23} {'characters':>12} {'epochs':>8} {'memory':>9} time"
    )
    for words, (shape, n_chars, p) in choices.items():
        n_bytes = least_bytes(values | shape.keys)
        amount = (
            f"{n_chars / 1e6:>10,.1f} M {n_chars / law.n_text:>8,.1f} {n_bytes / 1e9:>6,.1f} GB"
        )
        print(
            f"{words:10} {shape.name:>17} {p.words(3):>23} {amount} {n_chars / shape.chars_per_second:,.0f} s"
        )
    _, choice, twice = choices.values()
    more_text = replace(law, n_text=2 * law.n_text).predict(choice.shape.n_weights, choice.n_chars)
    by_budget, by_text = (
        choice.predicted.loss - loss for loss in (twice.predicted.loss, more_text.loss)
    )
    limit = "text" if by_text > by_budget else "budget"
    print(
        f"the {limit} is the limit: twice the budget gives {by_budget:.3f} less, twice the text {by_text:.3f}"
    )


if __name__ == "__main__":
    run_main(main)
