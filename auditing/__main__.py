"""Audit any masked-language-model pipeline: find the bugs that training does not show.

folio-audit masks TARGET                   TARGET: module:callable or file.py:callable
folio-audit masks collator.py:collator --html report.html
folio-audit loader TARGET                  TARGET: a DataLoader, a Trainer, or a function that makes
                                           one
folio-audit pipeline TARGET                TARGET: a module or file.py with make_model, make_batches
                                           and loss_and_logits (README.md), trained for two minutes
folio-audit course                         learn the bugs: repair 20 maskers, one after the other

`python -m auditing` is the same command, from the folder that holds `auditing`.

A masking target is a function x -> (inputs, labels) of a tensor of ids, a Hugging Face data
collator, or a function of a batch dict; or a function without arguments that makes one. Exit code:
0 all right, 3 something is broken, 2 invalid input. In tests of other projects:

    from auditing.masks import assert_masks
    assert_masks(collator)
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from auditing.course.course import add_course_options, take_course
from auditing.errors import TargetError
from auditing.findings import Verdict
from auditing.masks.audit import audit_masks_of
from auditing.masks.tokens import KINDS, MaskOptions
from auditing.report import Report, as_json, page, terminal

PRINTED = Path("-")  # as the file of --json: standard output
IDS = {"--n-tokens": "number of tokens, special ones included", "--mask": "id of [MASK]", "--padding": "id of padding",
       "--ignored": "the label that the loss ignores"}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        options = parser().parse_args(arguments)
        return options.execute(options)
    except (TargetError, ValueError) as error:
        say(str(error))
        return 2
    except BrokenPipeError:  # the reader of the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> Parser:
    """The command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    whole = Parser(prog="folio-audit", description=__doc__, formatter_class=formatter)
    commands = whole.add_subparsers(
        required=True, metavar="masks|loader|pipeline|course", parser_class=Parser
    )
    masks = commands.add_parser(
        "masks", help="audit a masking function or data collator"
    )
    masks.set_defaults(audit=masks_audit, is_loader=False)
    loader = commands.add_parser(
        "loader", help="audit the batches of a DataLoader or of a Trainer"
    )
    loader.set_defaults(audit=masks_audit, is_loader=True, kind=None, workers=0)
    pipeline = commands.add_parser(
        "pipeline", help="train a whole pipeline on the play and audit it"
    )
    pipeline.set_defaults(audit=pipeline_audit)
    course = commands.add_parser("course", help="hand out maskers to repair, and check")
    course.set_defaults(execute=take_course)
    add_course_options(course)
    for command in (masks, loader, pipeline):
        command.set_defaults(execute=audited)
        add_common_options(command)
    for command in (masks, loader):
        add_mask_options(command)
    masks.add_argument(
        "--kind", choices=KINDS, help="how the target is called (default: tried out)"
    )
    masks.add_argument(
        "--workers",
        type=int,
        default=2,
        help="DataLoader workers to compare; 0: none call the target",
    )
    pipeline.add_argument(
        "--minutes",
        type=float,
        default=2.0,
        metavar="M",
        help="in all (default: %(default)g)",
    )
    return whole


def add_common_options(command: argparse.ArgumentParser) -> None:
    """The options of every audit."""
    command.add_argument(
        "target",
        metavar="TARGET",
        help="module:name or file.py:name; see README.md",
    )
    command.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of texts, weights and target (default: %(default)s)",
    )
    text = "the time limit of each call of the target (default: %(default)g s)"
    command.add_argument(
        "--seconds-per-call", type=float, default=60.0, metavar="S", help=text
    )
    text = "print the findings as JSON instead of the report, or write them to FILE"
    command.add_argument(
        "--json", type=Path, nargs="?", const=PRINTED, metavar="FILE", help=text
    )
    command.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write one HTML file with pictures",
    )


def add_mask_options(command: argparse.ArgumentParser) -> None:
    """The options of audits of masks: the ids of the target, and what it should do."""
    for option, text in IDS.items():
        command.add_argument(
            option,
            type=int,
            metavar="N",
            help=f"{text} (default: the target's attributes)",
        )
    text = "ids that must not be selected; the first two that are not [MASK] or padding begin and end windows"
    command.add_argument("--special", type=id_list, metavar="ID,ID", help=text)
    command.add_argument(
        "--rate",
        type=float,
        help="the share that should be selected (default: of the recipe)",
    )
    command.add_argument(
        "--recipe",
        help="the recipe that the target should follow, such as BERT or SpanBERT",
    )


def id_list(text: str) -> tuple[int, ...]:
    """Ids separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of ids separated by commas"
        ) from None


def masks_audit(options: argparse.Namespace) -> Report:
    """Audit a masking target, or the batches of a loader."""
    stated = MaskOptions(
        **{field.name: getattr(options, field.name) for field in fields(MaskOptions)}
    )
    return audit_masks_of(
        options.target, stated, options.seconds_per_call, options.is_loader
    )


def pipeline_audit(options: argparse.Namespace) -> Report:
    """Train and audit a pipeline."""
    if not 0 < options.minutes < 1e6:
        raise ValueError(f"--minutes {options.minutes:g} is not above 0 and below 1e6")
    from auditing.pipelines.audit import audit_pipeline

    return audit_pipeline(
        options.target, options.minutes, options.seed, options.seconds_per_call, say
    )


def audited(options: argparse.Namespace) -> int:
    """Audit a target, show the report, and return the exit code."""
    check_report_options(options)
    return show(options.audit(options), options)


def check_report_options(options: argparse.Namespace) -> None:
    """Raises ValueError if the time limit or a file's folder makes no sense, before the target
    runs."""
    if not 0 < options.seconds_per_call < 1e6:  # a wait cannot last much longer
        raise ValueError(
            f"--seconds-per-call {options.seconds_per_call:g} is not above 0 and below 1e6"
        )
    for path in (options.json, options.html):
        if (
            path
            and path != PRINTED
            and (path.is_dir() or not path.absolute().parent.is_dir())
        ):
            raise ValueError(
                f"cannot write {path}: it is a folder, or its folder does not exist"
            )


def show(report: Report, options: argparse.Namespace) -> int:
    """Print a report, write its files, and return the exit code."""
    if options.json and options.json != PRINTED:
        options.json.write_text(as_json(report), encoding="utf-8")
    if options.html:
        options.html.write_text(page(report), encoding="utf-8")
    colors = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(
        as_json(report) if options.json == PRINTED else terminal(report, colors),
        flush=True,
    )
    return 3 if report.verdict == Verdict.BROKEN else 0


def say(message: str) -> None:
    """Print one line on stderr."""
    line = " ".join(message.split())
    print(
        f"folio-audit: {''.join(c if c.isprintable() else '?' for c in line)}",
        file=sys.stderr,
        flush=True,
    )


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """The command `folio-audit`."""
    # so that the target's process ends too
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    sys.exit(main(arguments))


if __name__ == "__main__":
    run()
