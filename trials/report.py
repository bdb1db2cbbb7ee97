"""The lines that a trial prints: after each pair, and at its end."""

import json
import math
import sys
from argparse import Namespace
from statistics import fmean
from typing import Any

from runs.errors import StoppedError
from runs.sequential import (
    ERROR,
    FIRST_LOOK,
    Interval,
    critical_values,
    expected_pairs,
    interval,
)
from trials.arms import Arm
from trials.trial import METRICS, MORE, Trial

# the first one that a variant has counts
EXIT_CODES = {"better": 0, None: 5, "no difference": 3, "worse": 4}
SECONDS_TO_START = 20  # of a run


class Report:
    """Says and saves what is known of a trial."""

    def __init__(self, options: Namespace, trial: Trial):
        self.options = options
        self.trial = trial
        error = ERROR / len(trial.variants)
        self.critical = critical_values(options.most, error)
        # of each variant, after each pair
        self.known: dict[str, list[Interval]] = {}
        magnitude = math.floor(math.log10(options.smallest))
        self.n_digits = max(3, 1 - magnitude)

    def say(self, line: str) -> None:
        file = sys.stderr if self.options.json else sys.stdout
        print(line, file=file, flush=True)

    def begin(self) -> None:
        """The time at most, and whether the trial continues."""
        n_pairs = self.options.most
        n_runs = n_pairs * len(self.trial.runs)
        line = f"at most {n_pairs} pairs, {n_runs} runs"
        seconds = self.trial.base.values["training.max_seconds"]
        if seconds:
            at_most = n_runs * (seconds + SECONDS_TO_START)
            line += f", {minutes(at_most)}"

        else:
            line += "; how long they take is known after the first pair"
        n_done = len(self.trial.all_runs)
        if n_done:
            line += f"; {n_done} are done in {self.trial.folder}"
        self.say(line)
        self.say(
            f"differences in {self.options.by}: the change minus {self.trial.base.name}"
        )

    def is_open(self, variant: Arm, n_pairs: int) -> bool:
        """Say what is known of a variant after a pair; returns whether it needs more."""
        metric = self.options.by
        differences = self.trial.differences(variant, metric, n_pairs)
        if not differences:
            raise StoppedError(
                f"these runs have no {metric}: choose another metric for --by"
            )

        known = interval(differences, self.critical)
        self.known.setdefault(variant.name, []).append(known)
        answer = self.answer(known)
        of_pairs = f"pair {n_pairs}: " if n_pairs == 1 else f"{n_pairs} pairs: mean "
        line = f"{variant.name}: {of_pairs}{self.shown(known)}"
        self.say(f"{line}; {answer or self.further(differences)}")
        return answer is None

    def answer(self, known: Interval) -> str | None:
        more_is_better = self.options.by in MORE
        return known.answer(self.options.smallest, more_is_better)

    def further(self, differences: list[float]) -> str:
        """How many pairs an answer still takes."""
        most = self.options.most
        mean_seconds = fmean(run["took"] for run in self.trial.all_runs)
        of_a_pair = mean_seconds * len(self.trial.runs)
        if len(differences) < 2:
            at_most = minutes(of_a_pair * most)
            return f"at least {FIRST_LOOK - 1} more; {at_most} for all"

        smallest = self.options.smallest
        expected = expected_pairs(differences, smallest, self.critical)
        if expected is None:
            return f"an answer within {most} pairs is not expected"
        return f"about {expected} more, {minutes(of_a_pair * expected)}"

    def save(self) -> None:
        """Write what the page /compare shows."""
        self.trial.save(
            by=self.options.by,
            equal=self.options.equal,
            smallest=self.options.smallest,
            base=self.trial.base.name,
            intervals=self.known,
        )

    def end(self) -> int:
        """Print one line per variant, or JSON; returns the exit code."""
        results = [self.result(variant) for variant in self.trial.variants]
        if self.options.json:
            print(json.dumps(results), flush=True)

        answers = [result["answer"] for result in results]
        best = next(each for each in EXIT_CODES if each in answers)
        return EXIT_CODES[best]

    def result(self, variant: Arm) -> dict[str, Any]:
        """Say the result about a variant; returns it for programs."""
        known = self.known[variant.name][-1]
        name = ""
        if len(self.known) > 1:
            name = f"{variant.name}: "

        beside = {}
        for metric in METRICS:
            differences = self.trial.differences(variant, metric, known.n_pairs)
            if differences and metric != self.options.by:
                other = interval(differences, self.critical)
                beside[metric] = other._asdict()
                self.say(
                    f"{name}{metric}: {self.shown(other)} {METRICS[metric]}".rstrip()
                )

        answer = self.answer(known)
        line = self.line(variant, known, answer)
        self.say(line)
        return {
            "variant": variant.name,
            "answer": answer,
            "line": line,
            **known._asdict(),
            "beside": beside,
        }

    def line(self, variant: Arm, known: Interval, answer: str | None) -> str:
        """The result in one line, with its conditions."""
        by = self.options.by
        unit = METRICS[by]
        if by != "loss.valid":
            unit = f"{unit} in {by}"

        if answer in ("better", "worse"):
            # the mean is between them
            low, mean, high = (self.number(x) for x in sorted(map(abs, known[1:])))
            text = f"{answer} by {mean} {unit} ({low} to {high})"
        elif answer:
            smallest = self.options.smallest
            text = f"{answer} as large as {smallest:g} {unit}: {self.shown(known)}"
        else:
            text = f"no answer yet: {self.shown(known)} {unit}"

        equal = self.options.equal
        budget = self.trial.base.values[f"training.max_{equal}"]
        runs = f"{budget:g} s" if equal == "seconds" else f"{budget:,} {equal}"
        arms = f"{variant.name} against {self.trial.base.name}"
        return f"{text}, {known.n_pairs} pairs of {runs}, equal {equal}: {arms}"

    def shown(self, known: Interval) -> str:
        """A difference with its interval."""
        mean, low, high = (self.number(x, "+") for x in known[1:])
        if known.n_pairs < FIRST_LOOK:
            return mean
        return f"{mean} ({low} to {high})"

    def number(self, value: float, sign: str = "") -> str:
        n_digits = self.n_digits if abs(value) < 10 else 0
        return f"{value:{sign},.{n_digits}f}"


def minutes(seconds: float) -> str:
    n = max(1, round(seconds / 60))
    unit = "minute" if n == 1 else "minutes"
    return f"about {n} {unit}"
