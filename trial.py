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
START = 20  # seconds of a run beside its training, at first


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
    parser.add_argument(
        "--equal",
        choices=("seconds", "chars", "steps"),
        default="seconds",
        help="the unit of the budget, which all arms share (default: seconds)",
    )
    parser.add_argument(
        "--by",
        default="loss.valid",
        metavar="METRIC",
        help="the metric that decides (default: loss.valid); excess, accuracy.valid,"
        " chars_per_second, memory, or tasks",
    )
    parser.add_argument(
        "--tasks", action="store_true", help="measure probes of the text's tasks too"
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
    return run_script(parser, arguments, decide, "requirements-finetune.txt")


def decide(options: Namespace) -> int:
    """Train pairs until every variant has its answer, or there are enough; returns the exit code."""
    from runs.files import locked
    from trials.arms import arm, check_arms
    from trials.measures import METRICS, TASKS
    from trials.trial import Trial

    if not options.change and not options.against:
        raise ConfigError("name a change, such as training.muon_momentum=0.95")
    if options.by not in METRICS:
        raise ConfigError(f"--by {options.by}: choose one of {', '.join(METRICS)}")
    changes = [options.against, options.change, *options.others]
    base = [f"--preset={options.preset}"] if options.preset else []
    if options.init_from:
        base = [f"--init-from={options.init_from}"]
    arms = [arm(words, options.both, base) for words in changes]
    check_arms(arms, options.equal, options.most)
    with_tasks = options.tasks or options.by == TASKS
    if with_tasks:
        from trials.tasks import check_tasks

        check_tasks(arms)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    trial = Trial(logs_folder(arms[0].values["logs"]), arms, with_tasks)
    critical = critical_values(options.most, ERROR / len(trial.variants))
    report = Report(options, trial, critical, METRICS)
    with locked(trial.folder / "lock", report.say):
        report.begin()
        variants = trial.variants
        for n_pairs in range(1, options.most + 1):
            trial.train_pair(n_pairs - 1, variants)
            variants = [each for each in variants if report.is_open(each, n_pairs)]
            if not variants:
                break
        return report.end()


class Report:
    """Says what is known of a trial."""

    def __init__(self, options: Namespace, trial: Any, critical: Any, metrics: Any):
        self.options = options
        self.trial = trial
        self.critical = critical
        self.metrics = metrics
        self.metric = metrics[options.by]
        self.known: dict[str, Interval] = {}  # by the name of the variant
        self.n_digits = max(3, 1 - math.floor(math.log10(options.smallest)))
        self.file = sys.stderr if options.json else sys.stdout

    def say(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def begin(self) -> None:
        """The time at most, and whether the trial continues."""
        n_runs = self.options.most * (1 + len(self.trial.variants))
        seconds = self.trial.base.values["training.max_seconds"]
        time_at_most = f", {minutes(n_runs * (seconds + START))}" if seconds else ""
        self.say(f"at most {self.options.most} pairs, {n_runs} runs{time_at_most}")
        n_done = len(self.trial.runs)
        if n_done:
            self.say(f"{n_done} runs are done: continuing {self.trial.folder}")

    def is_open(self, variant: Any, n_pairs: int) -> bool:
        """Say what is known of a variant after a pair; returns whether it needs more."""
        differences = self.trial.differences(variant, self.options.by, n_pairs)
        known = interval(differences, self.critical)
        self.known[variant.name] = known
        answer = self.answer(known)
        line = f"pair {n_pairs}: {variant.name}: {self.signed(known)}"
        if answer or n_pairs == self.options.most:
            self.say(f"{line}: {answer or 'no answer yet'}")
        else:
            self.say(f"{line}; {self.more(differences)}")
        return answer is None

    def answer(self, known: Interval) -> str | None:
        return known.answer(self.options.smallest, self.metric.more_is_better)

    def more(self, differences: list[float]) -> str:
        """How many further pairs an answer takes."""
        n_pairs = FIRST_LOOK - len(differences)
        if len(differences) < 2:
            return f"at least {n_pairs} more"
        expected = expected_pairs(differences, self.options.smallest, self.critical)
        if expected is None:
            return f"an answer within {self.options.most} pairs is not expected"
        seconds = sum(run["wall_seconds"] for run in self.trial.runs)
        seconds *= expected / len(differences)
        return f"about {expected} more, {minutes(seconds)}"

    def signed(self, known: Interval) -> str:
        """A difference with its interval."""
        mean, low, high = (f"{x:+.{self.n_digits}f}" for x in known[1:])
        return mean if known.n_pairs < FIRST_LOOK else f"{mean} ({low} to {high})"

    def end(self) -> int:
        """Print one line per variant, or JSON; returns the exit code."""
        results = [self.result(variant) for variant in self.trial.variants]
        options = {key: vars(self.options)[key] for key in ("by", "equal", "smallest")}
        self.trial.save(**options, answers=results)
        if self.options.json:
            print(json.dumps(results), flush=True)
        answers = [result["answer"] for result in results]
        return next(EXIT_CODES[each] for each in EXIT_CODES if each in answers)

    def result(self, variant: Any) -> dict[str, Any]:
        """Say what the trial has found out about a variant; returns it for programs."""
        known = self.known[variant.name]
        name = f"{variant.name}: " if len(self.known) > 1 else ""
        beside = {}
        for metric in self.metrics:
            differences = self.trial.differences(variant, metric, known.n_pairs)
            if differences and metric != self.options.by:
                other = interval(differences, self.critical)
                beside[metric] = other._asdict()
                self.say(f"{name}{metric}: {self.signed(other)}")
        line = self.line(known)
        self.say(f"{name}{line}")
        about = {"variant": variant.name, "answer": self.answer(known), "line": line}
        return about | known._asdict() | {"beside": beside}

    def line(self, known: Interval) -> str:
        """The result in one line, with its conditions."""
        answer = self.answer(known)
        unit = self.metric.unit
        if answer in ("better", "worse"):
            low, high = sorted((abs(known.low), abs(known.high)))
            sizes = [f"{x:.{self.n_digits}f}" for x in (abs(known.mean), low, high)]
            text = f"{answer} by {sizes[0]} {unit} ({sizes[1]} to {sizes[2]})"
        elif answer:
            smallest = f"{self.options.smallest:g} {unit}"
            text = f"no difference as large as {smallest}: {self.signed(known)}"
        else:
            text = f"no answer yet: {self.signed(known)} {unit}"
        equal = self.options.equal
        budget = self.trial.base.values[f"training.max_{equal}"]
        runs = f"{budget:g} s" if equal == "seconds" else f"{budget:,} {equal}"
        by = "" if self.options.by == "loss.valid" else f" in {self.options.by}"
        return f"{text}{by}, {known.n_pairs} pairs of {runs}, equal {equal}"


def minutes(seconds: float) -> str:
    n = max(1, round(seconds / 60))
    return f"about {n} minute{'s' * (n > 1)}"


if __name__ == "__main__":
    run_main(main)
