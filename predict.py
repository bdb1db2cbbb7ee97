r"""Fill the blanks of a text with a trained run.

python predict.py RUN "To be, or n__ to be"         RUN: a folder, a uuid or its first characters, or `last`
python predict.py RUN < texts.txt                   one text per line, one filled line each

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an underscore.
"""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from torch import Tensor

from configs.keys import ConfigError
from configs.one_line import fail, run_main
from configs.scripts import number, run_parser, run_script
from data.vocabulary import printable
from trained.fill import Filled, encode, fill
from trained.load import Trained, load_trained

CHUNK = 65_536  # bytes of standard input at once
LONGEST_LINE = 2**24  # bytes
COLORS = ((0.9, "32"), (0.5, "33"), (0.0, "31"))  # green from a probability of 0.9, yellow from 0.5, red below


def main(arguments: list[str]) -> int:
    """Fill the texts of the command line, or the lines of standard input; returns the exit code."""
    parser = run_parser(__doc__)
    parser.add_argument("texts", metavar="TEXT", nargs="*", default=[], help="default: the lines of standard input")
    top = "show the N most probable characters (or tokens) per blank; all of them if the run knows fewer"
    parser.add_argument("--top", type=number(int, 1), metavar="N", help=top)
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")
    return run_script(parser, arguments, fill_texts)


def fill_texts(options: Namespace) -> int:
    """Print the filled texts, up to the first that the model cannot read; returns the exit code."""
    if not options.texts and sys.stdin is None:
        raise ConfigError("standard input is closed: name a TEXT, or pipe lines into the command")
    trained = load_trained(options.run, options.logs)
    unit = "character" if trained.vocabulary.is_characters else "token"
    named = [(f"text {n}", text) for n, text in enumerate(options.texts, 1)]
    never = "" if options.texts else "\n"  # a line stays one line
    for texts in [named] if named else lines(sys.stdin.buffer):
        ids, problem = encoded(texts, trained)
        for filled in fill(trained, ids, n_candidates=options.top or 1, never=never):
            show(filled, options.top is not None, options.json, unit)
        sys.stdout.flush()
        if problem:
            return fail(problem)
    return 0


def lines(source: BinaryIO) -> Iterator[list[tuple[str, bytes]]]:
    """The lines of a stream and their names, in batches of those that have arrived: no line waits for others.

    Raises ConfigError if a line has more than 16 MiB.
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


def encoded(texts: Sequence[tuple[str, str | bytes]], trained: Trained) -> tuple[list[Tensor], str]:
    """Token ids of texts with names, up to the first that the model cannot read, and what is wrong with that one."""
    ids: list[Tensor] = []
    for name, text in texts:
        try:
            ids.append(encode(text if isinstance(text, str) else text.decode(), trained))
        except UnicodeDecodeError:
            return ids, f"{name} is not UTF-8 text"
        except ValueError as error:
            return ids, f"{name}: {error}"
    return ids, ""


def show(filled: Filled, with_candidates: bool, as_json: bool, unit: str) -> None:
    """Print a filled text; if asked, with the candidates of each blank below it. `unit` is their name in JSON."""
    if as_json:
        blanks = [
            {"offset": guess.offset, "candidates": [{unit: text, "probability": p} for text, p in guess.candidates]}
            for guess in filled.guesses
        ]
        print(json.dumps({"text": filled.text, "blanks": blanks}, ensure_ascii=False))
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
    for guess in filled.guesses if with_candidates else ():
        candidates = "  ".join(f"{text!r} {probability:.1%}" for text, probability in guess.candidates)
        print(f"  {guess.offset:4}  {candidates}")


if __name__ == "__main__":
    run_main(main)
