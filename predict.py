r"""Fill the blanks of a text with a trained run.

python predict.py RUN "To be, or n__ to be"         RUN: a folder, a uuid or its first characters, or `last`
python predict.py RUN < texts.txt                   one text per line, one filled line each

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an underscore.
"""

import json
import os
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from data.vocabulary import printable
from runs.files import ROOT
from runs.run_folder import RunFolderError
from trained.fill import Filled, encode, fill
from trained.load import Trained, load_trained
from training.checkpoint import CheckpointError

CHUNK = 65_536  # bytes of standard input at once
COLORS = ((0.9, "32"), (0.5, "33"), (0.0, "31"))  # green from a probability of 0.9, yellow from 0.5, red below


def main(arguments: list[str]) -> int:
    """Fill the texts of the command line, or the lines of standard input; returns the exit code."""
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    parser.add_argument("texts", metavar="TEXT", nargs="*", default=[], help="default: the lines of standard input")
    top = "show the N most probable characters (or tokens) per blank; all of them if the run knows fewer"
    parser.add_argument("--top", type=int, metavar="N", help=top)
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_intermixed_args(arguments)  # options before or after texts
        if options.top is not None and options.top < 1:
            raise ConfigError(f"--top {options.top} is below 1")
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
    except (ConfigError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except BrokenPipeError:  # the reader of the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def lines(source: BinaryIO) -> Iterator[list[tuple[str, bytes]]]:
    """The lines of a stream and their names, in batches of those that have arrived: no line waits for others."""
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
