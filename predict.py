r"""Fill the blanks of a text with a trained run, score texts, compare them by their vectors, or
classify texts with a classifier that finetune.py has saved.

python predict.py RUN "To be, or n__ to be"    RUN: a folder, a uuid or its first characters, or last
python predict.py RUN < texts.txt              one text per line, one filled line each
python predict.py RUN rows.jsonl --column text > filled.jsonl
                                               JSON lines, CSV or TSV: fills the texts in a column
                                               of the file, or of standard input
python predict.py RUN --score < texts.txt      one line per text: the log-likelihood of its tokens,
                                               each given all others, and the mean per character
python predict.py FOLDER < texts.txt           one text per line; prints its label, one line per
                                               labelled piece, or a line with a tag per word
python predict.py RUN --vectors out.npy < texts.txt
                                               one vector per line, float32 [n_texts, d_model]
python predict.py RUN --search "a text" FILE   the lines of FILE whose vectors have the highest
                                               cosine with that of the text; --column for tables
python predict.py --serve RUN                  one answer per line of JSON, as the page /try asks

A blank is _ or [MASK], or the STRING of --blank: one character, or one token of a run with other
data.tokens. Everything else comes out as it came in, also characters that the run does not know. A
backslash before a blank makes it plain text: \_ is an underscore, \\_ a backslash and a blank. A line
of standard input is one text, in which \n is read as a line break, and \\n as \n. Both come out as they
came in. All other backslashes are plain; with --raw all are.

--column fills the blanks of this field, or adds to each row: with a classifier the columns prediction
and probability, with --score the columns score and score_per_character. All else in the rows stays. A
table whose first line begins with { is JSON lines. Any other is CSV or TSV, and its first line names
the columns. A FILE that ends with .gz or .zst is unpacked; other endings do not count.

A text that is longer than the windows in training is read in overlapping pieces. Its vector is the
mean of the vectors of pieces that do not overlap, weighted by their tokens.
"""

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from configs.command_line.program import fail, run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from data.text.files import opened
from runs.find import find_run
from trained import vectors
from trained.answers import answers
from trained.load import load, load_trained
from trained.nearest import N_NEAREST, print_nearest, read_all, save_vectors
from trained.piped import (
    Argument,
    Item,
    Line,
    lines,
    named,
    read_until_error,
    write_as_read,
)
from trained.printed import Fillings, Labels, Scores
from trained.rows import Table
from trained.saved_classifier import check_new, is_classifier, load_classifier
from trained.template import Notation, add_notation

FILE_AS_TEXT = "text(s) name a file, which is not read: send it to standard input, or name a --column"
JSON_AS_TEXT = "text(s) of JSON are read as plain text: --column NAME reads a field"


def main(arguments: list[str]) -> int:
    """Fill the texts of the command line, or the lines of standard input; returns the exit code."""
    parser = run_parser(__doc__)
    texts = (
        "default: the lines of standard input; with --column, the FILE with the table"
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", default=[], help=texts)
    top = (
        "show the N most probable characters (or tokens) per blank, or labels per text; the N nearest"
        f" texts (default: {N_NEAREST})"
    )
    parser.add_argument("--top", type=number(int, 1), metavar="N", help=top)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per text"
    )
    add_notation(parser)
    unknown = "fill characters that the run does not know as blanks"
    parser.add_argument("--unknown", action="store_true", help=unknown)
    column = "the column of a table with the texts; dotted for a nested one of JSON; twice for a"
    column += " classifier of pairs"
    parser.add_argument("--column", metavar="NAME", action="append", help=column)
    score = "print the pseudo-log-likelihood of each text, in nats and per character"
    parser.add_argument("--score", action="store_true", help=score)
    write = "write one vector per text to a new .npy file"
    parser.add_argument("--vectors", metavar="FILE", type=Path, help=write)
    search = (
        "print the texts of FILE, or of standard input, that are nearest to this one"
    )
    parser.add_argument("--search", metavar="QUERY", help=search)
    vectors.add_options(parser)
    mix = "mix all layers as the classifier, whose FOLDER is named, weighs them"
    parser.add_argument("--mix", action="store_true", help=mix)
    whiten = "center and whiten the vectors on the texts that are read"
    parser.add_argument("--whiten", action="store_true", help=whiten)
    serve = "answer lines of JSON until standard input ends"
    parser.add_argument("--serve", action="store_true", help=serve)

    return run_script(parser, arguments, answer)


def answer(options: Namespace) -> int:
    check(options)
    if options.serve:
        for line in answers(load_trained(options.run, options.logs), sys.stdin.buffer):
            print(line, flush=True)
        return 0

    write_as_read()
    if options.vectors or options.search:
        return answer_by_vectors(options)
    predictions = predictions_of(options)
    if options.column:
        return answer_table(options, predictions)
    with items_of(options) as batches:
        return show(predictions, batches)


@contextmanager
def items_of(options: Namespace) -> Iterator[Iterable[Sequence[Item]]]:
    """The texts of the command line, of a file, or of standard input, in batches."""
    if options.texts and not (options.column or options.search):
        yield [list(named(options.texts))]
        return
    with table_file(options.texts) as file:
        batches = lines(file)
        yield Table(batches, options.column).batches() if options.column else batches


def answer_by_vectors(options: Namespace) -> int:
    """Write the vectors of texts, or print the texts that are nearest to a query."""
    run = find_run(options.run, options.logs)
    vectors.check_options(run, options.pooling, options.layer)
    if options.mix and not is_classifier(run.path):
        raise ConfigError(
            "--mix needs the folder of a classifier, as finetune.py --save writes it"
        )
    if options.vectors:
        check_new(options.vectors, "--vectors")
    are_lines = not options.column and (options.search or not options.texts)
    notation = Notation(raw=options.raw, in_lines=bool(are_lines))
    with items_of(options) as batches:
        trained = load_classifier(run.path) if is_classifier(run.path) else load(run)
        vectors.cut_after(trained.encoder, options.layer)
        items = read_all(batches, notation)
    answer_items = print_nearest if options.search else save_vectors
    notes = answer_items(trained, items, options)
    print_notes(notes + read_as_text(item for item, _ in items))

    return 0


def answer_table(options: Namespace, predictions: Fillings | Scores | Labels) -> int:
    n_columns = predictions.n_texts
    if len(options.column) != n_columns:
        raise ConfigError(f"--column: name {n_columns}, one per text")
    with table_file(options.texts) as file:
        table = Table(lines(file), options.column, predictions.added)
        sys.stdout.write(table.header)
        return show(predictions, table.batches())


def table_file(names: Sequence[str]) -> Any:
    """The named file, or standard input. Raises ConfigError."""
    if not names:
        return nullcontext(sys.stdin.buffer)
    try:
        return opened(Path(names[0]))
    except OSError as error:
        raise ConfigError(
            f"cannot read {names[0]} ({error.strerror}): name a file of lines, JSON lines, CSV or TSV"
        ) from error


def check(options: Namespace) -> None:
    """Raise ConfigError for options that exclude each other."""
    if not options.texts and sys.stdin is None:
        raise ConfigError(
            "standard input is closed: name a TEXT, or pipe lines into the command"
        )
    of_blanks = ("blank", "unknown", "top")
    of_vectors = ("vectors", "search", "pooling", "layer", "mix", "whiten")
    refused = {
        "serve": ("texts", "json", "column", "score", "raw", *of_blanks, *of_vectors),
        "vectors": ("search", "score", "json", *of_blanks),
        "search": ("score", "json", "blank", "unknown"),
        "column": ("json",) if options.search else ("json", "top"),
        "score": of_blanks,
        "mix": ("pooling", "layer"),
    }
    for option, others in refused.items():
        for other in others:
            if getattr(options, option) and getattr(options, other):
                name = "TEXT" if other == "texts" else f"--{other}"
                raise ConfigError(f"--{option} cannot be combined with {name}")
    for option in ("column", "search"):
        if getattr(options, option) and len(options.texts) > 1:
            raise ConfigError(f"--{option} reads one FILE, or standard input")
    if options.search == "":
        raise ConfigError("--search needs a text")
    if options.vectors or options.search:
        if options.column and len(options.column) > 1:
            raise ConfigError("--column: name one")
        return
    for option in of_vectors:
        if getattr(options, option):
            raise ConfigError(f"--{option} needs --vectors or --search")


def predictions_of(options: Namespace) -> Fillings | Scores | Labels:
    are_lines = not options.texts and not options.column
    notation = Notation(options.blank, options.raw, are_lines)
    folder = Path(options.run)
    if is_classifier(folder):
        for option in ("score", "blank", "unknown"):
            if getattr(options, option):
                raise ConfigError(f"--{option} needs a run: {folder} is a classifier")
        return Labels(load_classifier(folder), options.top, options.json, notation)

    trained = load_trained(options.run, options.logs)
    if options.score:
        return Scores(trained, options.json, notation)
    return Fillings(trained, options.top, options.json, notation, options.unknown)


def show(predictions: Any, batches: Iterable[Sequence[Item]]) -> int:
    """Print the predictions for texts, up to one that cannot be read, and the notes about them;
    returns the exit code."""
    notes = Counter[str]()
    problem = ""
    try:
        for items in batches:
            readable, problem = read_until_error(items, predictions.read)
            notes += predictions.show(readable)
            notes += read_as_text(items)
            sys.stdout.flush()
            if problem:
                break
    except ConfigError as error:
        problem = str(error)

    print_notes(notes)

    return fail(problem) if problem else 0


def print_notes(notes: Counter[str]) -> None:
    for note, n in notes.items():
        print(f"{n:,} {note}", file=sys.stderr)


def read_as_text(items: Iterable[Item]) -> Counter[str]:
    """Notes about names of files and lines of JSON that are read as plain text."""
    notes = Counter[str]()
    for item in items:
        if isinstance(item, Argument) and os.path.isfile(item.content):
            notes[FILE_AS_TEXT] += 1
        elif isinstance(item, Line) and item.is_json:
            notes[JSON_AS_TEXT] += 1

    return notes


if __name__ == "__main__":
    run_main(main)
