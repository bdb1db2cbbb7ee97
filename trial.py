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

EXIT_CODES = {"better": 0, "no difference": 3, "worse": 4, None: 5}
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
    below = parser.add_mutually_exclusive_group()
    below.add_argument("--preset", metavar="NAME", help="the recipe below all arms")
    below.add_argument(
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
        "--smallest",
        type=number(float, 1e-6),
        default=0.01,
        metavar="NATS",
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
        help="print the result as JSON; progress on stderr",
    )
    return run_script(parser, arguments, decide)


def decide(options: Namespace) -> int:
    """Train pairs until every variant has its answer, or there are enough; returns the exit code."""
    from runs.files import locked
    from trials.arms import arm, check_arms
    from trials.trial import Trial

    if not options.change and not options.against:
        raise ConfigError("name a change, such as training.muon_momentum=0.95")
    changes = [options.against, options.change, *options.others]
    below = [
        f"--{name}={value}"
        for name, value in (
            ("preset", options.preset),
            ("init-from", options.init_from),
        )
        if value
    ]
    arms = [arm(words, options.both, below) for words in changes]
    check_arms(arms, options.equal, options.most)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    trial = Trial(logs_folder(arms[0].values["logs"]), arms, options.equal)
    report = Report(options, trial)
    with locked(trial.folder / "lock", report.say):
        report.begin()
        critical = critical_values(options.most, ERROR / len(trial.variants))
        variants = trial.variants
        for pair in range(options.most):
            trial.train_pair(pair, variants)
            variants = [each for each in variants if report.pair(each, pair, critical)]
            if not variants:
                break
        return report.end()


class Report:
    """Says what is known of a trial."""

    def __init__(self, options: Namespace, trial: Any):
        self.options = options
        self.trial = trial
        self.answers: dict[str, tuple[Interval, str | None]] = {}
        self.n_digits = max(3, 1 - math.floor(math.log10(options.smallest)))

    def say(self, line: str) -> None:
        print(line, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def begin(self) -> None:
        """The time at most, and how to continue."""
        n_runs = self.options.most * (1 + len(self.trial.variants))
        seconds = self.trial.base.values["training.max_seconds"]
        time_at_most = f", {minutes(n_runs * (seconds + START))}" if seconds else ""
        self.say(f"at most {self.options.most} pairs, {n_runs} runs{time_at_most}")
        if self.trial.runs:
            self.say(
                f"{len(self.trial.runs)} runs are done: continuing {self.trial.folder}"
            )

    def pair(self, variant: Any, pair: int, critical: Any) -> bool:
        """Say what is known of a variant after a pair; returns whether it needs more."""
        differences = self.trial.differences(variant)[: pair + 1]
        known = interval(differences, critical)
        answer = known.answer(self.options.smallest)
        self.answers[variant.name] = known, answer
        line = f"pair {known.n_pairs}: {variant.name}: {self.nats(known.mean)}"
        if known.n_pairs >= FIRST_LOOK:
            line += f" ({self.nats(known.low)} to {self.nats(known.high)})"
        if answer:
            self.say(f"{line}: {answer}")
        elif known.n_pairs == self.options.most:
            self.say(line)
        elif known.n_pairs < 2:
            self.say(f"{line}; at least {FIRST_LOOK - known.n_pairs} more")
        else:
            more = expected_pairs(differences, self.options.smallest, critical)
            self.say(f"{line}; {self.further(more)}")
        return answer is None

    def further(self, n_pairs: int | None) -> str:
        if n_pairs is None:
            return f"an answer within {self.options.most} pairs is not expected"
        wall = sum(run["wall_seconds"] for run in self.trial.runs)
        pair = wall / len(self.trial.runs) * (1 + len(self.trial.variants))
        return f"about {n_pairs} more, {minutes(n_pairs * pair)}"

    def nats(self, value: float) -> str:
        return f"{value:+.{self.n_digits}f}"

    def end(self) -> int:
        """Print one line per variant, or JSON; returns the exit code."""
        results = []
        for variant in self.trial.variants:
            known, answer = self.answers[variant.name]
            results.append(
                {"variant": variant.name, "answer": answer, **known._asdict()}
                | {"line": self.line(known, answer)}
            )
        self.trial.save(answers=results, smallest=self.options.smallest)
        if self.options.json:
            print(json.dumps(results), flush=True)
        else:
            for result in results:
                name = f"{result['variant']}: " if len(results) > 1 else ""
                print(f"{name}{result['line']}", flush=True)
        answers = [result["answer"] for result in results]
        first = next(
            each
            for each in ("better", None, "no difference", "worse")
            if each in answers
        )
        return EXIT_CODES[first]

    def line(self, known: Interval, answer: str | None) -> str:
        """The result in one line, with its conditions."""
        size = f"{abs(known.mean):.{self.n_digits}f} nats"
        low, high = known.low, known.high
        if answer in ("better", "worse"):
            low, high = sorted((abs(low), abs(high)))
            text = f"{answer} by {size} ({low:.{self.n_digits}f} to {high:.{self.n_digits}f})"
        else:
            what = answer and f"no difference as large as {self.options.smallest:g}"
            text = f"{what or 'no answer yet'}: {self.nats(known.mean)} nats ({self.nats(low)} to {self.nats(high)})"
        equal = self.options.equal
        budget = self.trial.base.values[f"training.max_{equal}"]
        unit = {"seconds": " s"}.get(equal, f" {equal}")
        return f"{text}, {known.n_pairs} pairs of {budget:g}{unit}, equal {equal}"


def minutes(seconds: float) -> str:
    n = max(1, round(seconds / 60))
    return f"about {n} minute{'s' * (n > 1)}"


if __name__ == "__main__":
    run_main(main)
