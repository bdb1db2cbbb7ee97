r"""Fill the blanks of a text with a trained run, or classify texts with a classifier that
finetune.py has saved.

python predict.py RUN "To be, or n__ to be"    RUN: a folder, a uuid or its first characters, or last
python predict.py RUN < texts.txt              one text per line, one filled line each
python predict.py FOLDER < texts.txt           one text per line; prints its label, or one line per
                                               labelled piece
python predict.py --serve RUN                  one answer per line of JSON, as the page /try asks

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an
underscore. A text that is longer than the windows in training is read in overlapping pieces.
"""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from configs.command_line.program import fail, run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from trained.answers import answers
from trained.load import load_trained
from trained.piped import lines, read_until_error
from trained.printed import Fillings, Labels
from trained.saved_classifier import is_classifier, load_classifier


def main(arguments: list[str]) -> int:
    """Fill the texts of the command line, or the lines of standard input; returns the exit code."""
    parser = run_parser(__doc__)
    texts = "default: the lines of standard input"
    parser.add_argument("texts", metavar="TEXT", nargs="*", default=[], help=texts)
    top = (
        "show the N most probable characters (or tokens) per blank, or labels per text"
    )
    parser.add_argument("--top", type=number(int, 1), metavar="N", help=top)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per text"
    )
    unknown = "read characters that the run does not know as blanks"
    parser.add_argument("--unknown", action="store_true", help=unknown)
    serve = "answer lines of JSON until standard input ends"
    parser.add_argument("--serve", action="store_true", help=serve)

    return run_script(parser, arguments, answer)


def answer(options: Namespace) -> int:
    if not options.texts and sys.stdin is None:
        raise ConfigError(
            "standard input is closed: name a TEXT, or pipe lines into the command"
        )
    if options.serve:
        if options.texts or options.top or options.json or options.unknown:
            raise ConfigError(
                "--serve answers lines of standard input: leave out TEXT, --top, --json and"
                " --unknown"
            )
        for line in answers(load_trained(options.run, options.logs), sys.stdin.buffer):
            print(line, flush=True)
        return 0

    folder = Path(options.run)
    predictions: Fillings | Labels
    if is_classifier(folder):
        predictions = Labels(load_classifier(folder), options.top, options.json)
    else:
        trained = load_trained(options.run, options.logs)
        never = "" if options.texts else "\n"  # a line stays one line
        predictions = Fillings(
            trained, options.top, options.json, options.unknown, never
        )

    if options.texts:
        return show(
            predictions, [[(f"text {n}", t) for n, t in enumerate(options.texts, 1)]]
        )
    return show(predictions, lines(sys.stdin.buffer))


def show(predictions: Any, batches: Iterable[list[tuple[str, Any]]]) -> int:
    """Print the predictions for texts with names, up to one that cannot be read, and the notes
    about them; returns the exit code."""
    notes = Counter[str]()
    problem = ""
    for texts in batches:
        readable, problem = read_until_error(texts, predictions.read)
        notes += predictions.show(readable)
        sys.stdout.flush()
        if problem:
            break

    for note, n in notes.items():
        print(f"{n:,} {note}", file=sys.stderr)
    hint = (
        ": --unknown reads it as a blank"
        if problem.endswith("not in the vocabulary")
        else ""
    )

    return fail(problem + hint) if problem else 0


if __name__ == "__main__":
    run_main(main)
