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

import signal
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING

from configs.command_line.command import logs_folder
from configs.command_line.program import OneLineParser, fail, run_main
from configs.command_line.scripts import number, run_script
from configs.hugging_face import PREFIX
from configs.keys import ConfigError
from runs.find import find_run
from runs.sequential import FIRST_LOOK

if TYPE_CHECKING:
    from trials.report import Report
    from trials.trial import Trial


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
        default="loss.valid",
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
    from trials.report import Report
    from trials.trial import METRICS, TASKS, Trial

    if not options.change and not options.against:
        raise ConfigError("name a change, such as training.muon_momentum=0.95")
    if options.by not in METRICS:
        raise ConfigError(f"--by {options.by}: choose one of {', '.join(METRICS)}")
    base = [f"--preset={options.preset}"] if options.preset else []
    start = options.init_from
    if start and not start.startswith(PREFIX):
        # its name would not be known in the folder of the trial
        run = find_run(start, logs_folder("logs"))
        start = f"{run.path}{run.suffix}"
    if start:
        base = [f"--init-from={start}"]
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
    trial = Trial(logs_folder(arms[0].values["logs"]), arms, with_tasks)
    report = Report(options, trial)
    try:
        with locked(trial.folder / "lock", report.say):
            trial.remove_interrupted()
            report.begin()
            train_pairs(trial, report, options.most)
    except KeyboardInterrupt:
        return fail("interrupted: the same command continues", code=130)
    return report.end()


def train_pairs(trial: "Trial", report: "Report", most: int) -> None:
    """Train pairs until every variant has its answer."""
    variants = trial.variants
    for n_pairs in range(1, most + 1):
        trial.train_pair(n_pairs - 1, variants)
        variants = [each for each in variants if report.is_open(each, n_pairs)]
        report.save()
        if not variants:
            break


if __name__ == "__main__":
    # SIGTERM ends the run that trains, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run_main(main)
