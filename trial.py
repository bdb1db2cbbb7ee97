"""Is a change better? Train pairs of runs with the same seeds until the answer is certain.

python trial.py KEY=VALUE ... [--against KEY=VALUE ...] [--both KEY=VALUE ...] [--preset NAME]

python trial.py training.muon_momentum=0.95           against the preset itself
python trial.py model.n_layers=2 --or model.n_layers=3
                                                      several variants, with one correction
python trial.py my.yaml --against theirs.yaml --both training.max_seconds=60
python trial.py seed=1000                             nothing changed: how large is the luck?

The answer is better, worse, or no difference as large as --smallest. Its interval is valid after
every pair, so a trial ends as soon as the answer is certain. The same command continues an
interrupted trial. Exit codes: 0 better, 3 no difference, 4 worse, 5 no answer yet. docs/trials.md
has the details.
"""

import json
import math
import signal
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from typing import Any

from configs.command_line.command import logs_folder
from configs.command_line.program import OneLineParser, run_main
from configs.command_line.scripts import number, run_script
from configs.keys import ConfigError
from runs.errors import StoppedError
from runs.sequential import (
    ERROR,
    FIRST_LOOK,
    Interval,
    critical_values,
    expected_pairs,
    interval,
)

# the first one that a variant has counts
EXIT_CODES = {"better": 0, None: 5, "no difference": 3, "worse": 4}
SECONDS_TO_START = 20  # of a run
DECIDES = "loss.valid"


def main(arguments: list[str]) -> int:
    parser = OneLineParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    key = {"nargs": "*", "metavar": "KEY=VALUE", "default": []}
    parser.add_argument("change", help="keys of experiment.py, or a config file", **key)
    parser.add_argument(
        "--or",
        dest="others",
        action="append",
        help="another variant; may be given several times",
        **key,
    )
    parser.add_argument("--against", help="the base (default: the preset)", **key)
    parser.add_argument("--both", help="keys of all arms, such as the budget", **key)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--preset", metavar="NAME", help="the recipe below all arms")
    start.add_argument(
        "--init-from",
        metavar="RUN",
        help="all arms continue this run, or the checkpoint hf:FOLDER",
    )
    add_rules(parser)
    return run_script(parser, arguments, decide, "requirements-finetune.txt")


def add_rules(parser: OneLineParser) -> None:
    """Add the options that say what is measured, and when a trial ends."""
    parser.add_argument(
        "--equal",
        choices=("seconds", "chars", "steps"),
        default="seconds",
        help="the unit of the budget, which all arms share (default: seconds)",
    )
    parser.add_argument(
        "--by",
        default=DECIDES,
        metavar="METRIC",
        help="the metric that decides (default: loss.valid); excess, accuracy.valid,"
        " chars_per_second, memory, or tasks",
    )
    parser.add_argument(
        "--tasks", action="store_true", help="measure probes of the text's tasks too"
    )
    parser.add_argument(
        "--holdout",
        action="store_true",
        help="measure on a part of the text that no other trial has measured",
    )
    parser.add_argument(
        "--smallest",
        type=number(float, 1e-6),
        default=0.01,
        metavar="X",
        help="the smallest difference that matters (default: 0.01)",
    )
    parser.add_argument(
        "--most",
        type=number(int, FIRST_LOOK, 200),
        default=20,
        metavar="N",
        help="pairs at most (default: 20)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the results as JSON, and progress on stderr",
    )


def decide(options: Namespace) -> int:
    """Train pairs until every variant has its answer, or there are enough; returns the exit code."""
    from runs.files import locked
    from trials.arms import arm, check_arms, held_out
    from trials.trial import METRICS, TASKS, Trial

    if not options.change and not options.against:
        raise ConfigError("name a change, such as training.muon_momentum=0.95")
    if options.by not in METRICS:
        raise ConfigError(f"--by {options.by}: choose one of {', '.join(METRICS)}")
    base = [f"--preset={options.preset}"] if options.preset else []
    if options.init_from:
        base = [f"--init-from={options.init_from}"]
    if options.holdout:
        values = arm(options.against, options.both, base).values
        options.both.append(f"data.corpus={held_out(values)}")
    changes = [options.against, options.change, *options.others]
    arms = [arm(words, options.both, base) for words in changes]
    check_arms(arms, options.equal, options.most)
    with_tasks = options.tasks or options.by == TASKS
    if with_tasks:
        from trials.tasks import check_tasks

        check_tasks(arms)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    trial = Trial(logs_folder(arms[0].values["logs"]), arms, with_tasks)
    report = Report(options, trial)
    with locked(trial.folder / "lock", report.say):
        trial.remove_interrupted()
        report.begin()
        variants = trial.variants
        for n_pairs in range(1, options.most + 1):
            trial.train_pair(n_pairs - 1, variants)
            variants = [each for each in variants if report.is_open(each, n_pairs)]
            report.save()
            if not variants:
                break
        return report.end()


class Report:
    """Says what is known of a trial."""

    def __init__(self, options: Namespace, trial: Any):
        self.options = options
        self.trial = trial
        self.critical = critical_values(options.most, ERROR / len(trial.variants))
        # of each variant, after each pair
        self.known: dict[str, list[Interval]] = {}
        self.n_digits = max(3, 1 - math.floor(math.log10(options.smallest)))

    def say(self, line: str) -> None:
        file = sys.stderr if self.options.json else sys.stdout
        print(line, file=file, flush=True)

    def begin(self) -> None:
        """The time at most, and whether the trial continues."""
        n_runs = self.options.most * len(self.trial.runs)
        line = f"at most {self.options.most} pairs, {n_runs} runs"
        seconds = self.trial.base.values["training.max_seconds"]
        if seconds:
            line += f", {minutes(n_runs * (seconds + SECONDS_TO_START))}"
        n_done = len(self.trial.all_runs)
        self.say(
            f"{line}; {n_done} are done in {self.trial.folder}" if n_done else line
        )

    def is_open(self, variant: Any, n_pairs: int) -> bool:
        """Say what is known of a variant after a pair; returns whether it needs more."""
        differences = self.trial.differences(variant, self.options.by, n_pairs)
        if not differences:
            raise StoppedError(f"these runs have no {self.options.by}: leave --by out")
        known = interval(differences, self.critical)
        self.known.setdefault(variant.name, []).append(known)
        answer = self.answer(known)
        line = f"pair {n_pairs}: {variant.name}: {self.shown(known)}"
        self.say(f"{line}; {answer or self.further(differences)}")
        return answer is None

    def answer(self, known: Interval) -> str | None:
        from trials.trial import MORE

        return known.answer(self.options.smallest, self.options.by in MORE)

    def further(self, differences: list[float]) -> str:
        """How many pairs an answer still takes."""
        took = sum(run["took"] for run in self.trial.all_runs) / len(differences)
        if len(differences) < 2:
            at_most = minutes(took * self.options.most)
            return f"at least {FIRST_LOOK - 1} more; {at_most} for all"
        expected = expected_pairs(differences, self.options.smallest, self.critical)
        if expected is None:
            return f"an answer within {self.options.most} pairs is not expected"
        return f"about {expected} more, {minutes(took * expected)}"

    def shown(self, known: Interval) -> str:
        """A difference with its interval."""
        mean, low, high = (f"{x:+.{self.n_digits}f}" for x in known[1:])
        return mean if known.n_pairs < FIRST_LOOK else f"{mean} ({low} to {high})"

    def save(self) -> None:
        """Write what the page /compare shows."""
        options = vars(self.options)
        shown = {key: options[key] for key in ("by", "equal", "smallest")}
        self.trial.save(**shown, base=self.trial.base.name, intervals=self.known)

    def end(self) -> int:
        """Print one line per variant, or JSON; returns the exit code."""
        results = [self.result(variant) for variant in self.trial.variants]
        if self.options.json:
            print(json.dumps(results), flush=True)
        answers = [result["answer"] for result in results]
        return next(EXIT_CODES[each] for each in EXIT_CODES if each in answers)

    def result(self, variant: Any) -> dict[str, Any]:
        """Say the result about a variant; returns it for programs."""
        from trials.trial import METRICS

        known = self.known[variant.name][-1]
        name = f"{variant.name}: " if len(self.known) > 1 else ""
        beside = {}
        for metric in METRICS:
            differences = self.trial.differences(variant, metric, known.n_pairs)
            if differences and metric != self.options.by:
                other = interval(differences, self.critical)
                beside[metric] = other._asdict()
                self.say(f"{name}{metric}: {self.shown(other)}")
        line = self.line(known, METRICS[self.options.by])
        self.say(f"{name}{line}")
        about = {"variant": variant.name, "answer": self.answer(known), "line": line}
        return about | known._asdict() | {"beside": beside}

    def line(self, known: Interval, unit: str) -> str:
        """The result in one line, with its conditions."""
        answer = self.answer(known)
        if answer in ("better", "worse"):
            low, high = sorted((abs(known.low), abs(known.high)))
            mean, low, high = (
                f"{x:.{self.n_digits}f}" for x in (abs(known.mean), low, high)
            )
            text = f"{answer} by {mean} {unit} ({low} to {high})"
        else:
            smallest = (
                f" as large as {self.options.smallest:g} {unit}" if answer else ""
            )
            text = f"{answer or 'no answer yet'}{smallest}: {self.shown(known)}"
        equal = self.options.equal
        budget = self.trial.base.values[f"training.max_{equal}"]
        runs = f"{budget:g} s" if equal == "seconds" else f"{budget:,} {equal}"
        by = "" if self.options.by == DECIDES else f" in {self.options.by}"
        return f"{text}{by}, {known.n_pairs} pairs of {runs}, equal {equal}"


def minutes(seconds: float) -> str:
    n = max(1, round(seconds / 60))
    return f"about {n} minute{'s' * (n > 1)}"


if __name__ == "__main__":
    run_main(main)
