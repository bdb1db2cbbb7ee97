r"""Fill the blanks of a text with a trained run, or classify texts with a classifier that
finetune.py has saved.

python predict.py RUN "To be, or n__ to be"         RUN: a folder, a uuid or its first characters,
or `last` python predict.py RUN < texts.txt                   one text per line, one filled line
each

python predict.py FOLDER < texts.txt                one text per line; prints its label, or one line
per labelled piece python predict.py --serve RUN                       one answer per line of JSON,
as the dashboard's page /try asks

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an
underscore. A text that is longer than the windows in training is read in overlapping pieces.
"""

import json
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from torch import Tensor

from configs.command_line.program import fail, run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from data.tasks.task import CHARACTER, PAIR
from runs.terminal import printable
from trained.answers import answers
from trained.examples import n_cut, n_unknown
from trained.fill import Filled, encode, fill, with_unknown
from trained.load import load_trained
from trained.saved_classifier import SavedClassifier, is_classifier, load_classifier

T = TypeVar("T")
CHUNK = 65_536  # bytes of standard input at once
SEPARATOR = "\t"  # between the texts of a pair
LONGEST_LINE = 2**20  # bytes
WITHOUT_BLANKS = (
    "text(s) without a blank: write _ or [MASK] for one, and send a file to standard input"
)
# green from a probability of 0.9, yellow from 0.5, red below
COLORS = ((0.9, "32"), (0.5, "33"), (0.0, "31"))


def main(arguments: list[str]) -> int:
    """Fill the texts of the command line, or the lines of standard input; returns the exit code."""
    parser = run_parser(__doc__)
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", default=[], help="default: the lines of standard input"
    )
    top = "show the N most probable characters (or tokens) per blank, or labels per text"
    parser.add_argument("--top", type=number(int, 1), metavar="N", help=top)
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")
    parser.add_argument(
        "--unknown",
        action="store_true",
        help="read characters that the run does not know as blanks",
    )
    parser.add_argument(
        "--serve", action="store_true", help="answer lines of JSON until standard input ends"
    )
    return run_script(parser, arguments, answer)


def answer(options: Namespace) -> int:
    if not options.texts and sys.stdin is None:
        raise ConfigError("standard input is closed: name a TEXT, or pipe lines into the command")
    if options.serve and (options.texts or options.top or options.json or options.unknown):
        raise ConfigError(
            "--serve answers lines of standard input: leave out TEXT, --top, --json and --unknown"
        )
    if options.serve:
        for line in answers(load_trained(options.run, options.logs), sys.stdin.buffer):
            print(line, flush=True)
        return 0
    folder, notes = Path(options.run), Counter[str]()
    trained = (
        load_classifier(folder)
        if is_classifier(folder)
        else load_trained(options.run, options.logs)
    )
    named = [(f"text {n}", text) for n, text in enumerate(options.texts, 1)]
    for texts in [named] if named else lines(sys.stdin.buffer):
        if isinstance(trained, SavedClassifier):
            parts, problem = read(texts, pair_of if trained.kind == PAIR else lambda text: (text,))
            notes += classify(trained, parts, options)
        else:
            found, problem = read(
                texts, lambda text: (text, encode(text, trained, unknown=options.unknown))
            )
            never = "" if named else "\n"  # a line stays one line
            filled = fill(
                trained, [ids for _, ids in found], n_candidates=options.top or 1, never=never
            )
            for each, (text, _) in zip(filled, found, strict=True):
                whole = each._replace(text=with_unknown(each.text, text, trained.vocabulary))
                show(whole, trained.vocabulary.is_characters, options)
            notes[WITHOUT_BLANKS] += sum(not each.guesses for each in filled)
        sys.stdout.flush()
        if problem:
            break
    for note, n in (+notes).items():  # without zeros
        print(f"{n:,} {note}", file=sys.stderr)
    hint = ": --unknown reads it as a blank" if problem.endswith("not in the vocabulary") else ""
    return fail(problem + hint) if problem else 0


def classify(
    saved: SavedClassifier, texts: Sequence[tuple[str, ...]], options: Namespace
) -> Counter[str]:
    """Print the labels of texts or of pairs of texts; returns notes for the user, with counts."""
    flat = [text for parts in texts for text in parts]
    for parts, probabilities in zip(texts, saved.probabilities(flat) if flat else [], strict=True):
        show_labels(SEPARATOR.join(parts), probabilities, saved, options)
    return Counter(
        {
            f"texts were cut to {saved.longest} {saved.vocabulary.tokens}": n_cut(flat, saved),
            "texts are empty: their labels mean nothing": flat.count(""),
            "characters are not in the classifier's vocabulary": n_unknown(flat, saved.vocabulary),
        }
    )


def lines(source: BinaryIO) -> Iterator[list[tuple[str, bytes]]]:
    """The lines of a stream and their names, in batches of those that have arrived: no line waits
    for others.

    Raises ConfigError if a line has more than 1 MiB.
    """
    number, rest = 0, b""
    while True:
        chunk = source.read1(CHUNK)  # type: ignore[attr-defined]
        *whole, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            whole, rest = [rest], b""
        yield [(f"line {n}", line.removesuffix(b"\r")) for n, line in enumerate(whole, number + 1)]
        number += len(whole)
        if not chunk:
            return
        if len(rest) > LONGEST_LINE:
            raise ConfigError(f"line {number + 1} is longer than {LONGEST_LINE:,} bytes")


def read(
    texts: Sequence[tuple[str, str | bytes]], reader: Callable[[str], T]
) -> tuple[list[T], str]:
    """The results of `reader` for texts with names, up to the first text that it cannot read, and
    why it cannot."""
    found: list[T] = []
    for name, text in texts:
        try:
            found.append(reader((text.encode() if isinstance(text, str) else text).decode()))
        except UnicodeError:
            return found, f"{name} is not UTF-8 text"
        except ValueError as error:
            return found, f"{name}: {error}"
    return found, ""


def pair_of(text: str) -> tuple[str, ...]:
    """The two texts of a pair. Raises ValueError if there are not two."""
    if text.count(SEPARATOR) != 1:
        raise ValueError("a pair is two texts with a tab between them")
    return tuple(text.split(SEPARATOR))


def show_labels(
    text: str, probabilities: Tensor, saved: SavedClassifier, options: Namespace
) -> None:
    """Print the most probable labels of a text, or of its pieces if characters have labels.

    `probabilities` is `[1, n_labels]`, or `[length, n_labels]` for the characters.
    """
    n, of_characters = min(options.top or 1, len(saved.labels)), saved.kind == CHARACTER
    found = []
    for piece, each in (
        pieces_of(text, probabilities) if of_characters else [(text, probabilities[0])]
    ):
        best = [
            {"label": saved.labels[i], "probability": float(each[i])}
            for i in each.topk(n).indices.tolist()
        ]
        found.append({"text": piece, "labels": best})
        if not options.json:
            named = "  ".join(f"{each['label']} {each['probability']:.1%}" for each in best)
            print(f"{piece!r}  {named}" if of_characters else named)
    if options.json:
        print(as_json({"text": text, "pieces": found} if of_characters else found[0]))


def as_json(content: Mapping[str, Any]) -> str:
    """JSON for the standard output, with escapes for characters beyond ASCII unless its encoding is
    UTF-8."""
    return json.dumps(content, ensure_ascii=sys.stdout.encoding.lower().replace("-", "") != "utf8")


def pieces_of(text: str, probabilities: Tensor) -> list[tuple[str, Tensor]]:
    """Neighboring characters with the same most probable label, and the mean of their
    probabilities."""
    _, lengths = probabilities.argmax(1).unique_consecutive(return_counts=True)
    ends = [0, *lengths.cumsum(0).tolist()]
    return [(text[i:j], probabilities[i:j].mean(0)) for i, j in pairwise(ends)]


def show(filled: Filled, of_characters: bool, options: Namespace) -> None:
    """Print a filled text; if asked, with the candidates of each blank below it."""
    if options.json:
        unit = "character" if of_characters else "token"
        blanks = [
            {
                "offset": guess.offset,
                "candidates": [{unit: text, "probability": p} for text, p in guess.candidates],
            }
            for guess in filled.guesses
        ]
        print(as_json({"text": filled.text, "blanks": blanks}))
        return
    is_terminal = sys.stdout.isatty()
    characters = [printable(character) if is_terminal else character for character in filled.text]
    for guess in filled.guesses if is_terminal and "NO_COLOR" not in os.environ else ():
        color = next(color for probability, color in COLORS if guess.probability >= probability)
        end = guess.offset + len(guess.candidates[0][0])
        if guess.offset < end <= len(characters):  # a token may be no whole character
            characters[guess.offset] = f"\x1b[1;{color}m{characters[guess.offset]}"
            characters[end - 1] += "\x1b[0m"
    print("".join(characters))
    for guess in filled.guesses if options.top else ():
        candidates = "  ".join(
            f"{text!r} {probability:.1%}" for text, probability in guess.candidates
        )
        print(f"  {guess.offset:4}  {candidates}")


if __name__ == "__main__":
    run_main(main)
