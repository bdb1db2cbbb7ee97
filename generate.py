r"""Write text with a trained run, or fill the blanks of a text.

python generate.py RUN                                  RUN: a folder, a uuid or its first
                                                        characters, or last
python generate.py RUN --prompt "ROMEO:" --length 1000           continue a text
python generate.py RUN --prompt "To be, or ______ be" --n 5      fill its blanks in five ways

A blank is _ or [MASK], or the STRING of --blank: one character, or one token of a run with other
data.tokens. The rest of the prompt never changes. A backslash before a blank makes it plain text: \_
is an underscore, \\_ a backslash and a blank; with --raw all backslashes are plain.

The text after the prompt begins as blanks. In each step the order chooses some of them,
and each gets a token drawn from the model's probabilities. In a terminal the text appears step by
step. Elsewhere only the finished texts are printed, with a line --- between them.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from torch import Generator, Tensor

from configs.branch import derived_seed
from configs.command_line.program import run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from runs.terminal import printable
from trained.load import load_trained
from trained.piped import write_as_read
from trained.saved_classifier import check_new
from trained.template import Notation, Template, add_notation
from writing.animation import Recording
from writing.prompts import LONGEST, reservation_about, template_of
from writing.sampler import ORDERS, Sampler
from writing.terminal import Screen, can_redraw

LONGEST_GIF = 4_000  # tokens
SEPARATOR = "---"  # between texts


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__)
    prompt = "text to continue, or with blanks to fill"
    parser.add_argument("--prompt", metavar="TEXT", default="", help=prompt)
    add_notation(parser)
    length = "characters (or tokens) of the text, prompt included"
    length += (
        " (default: those of a prompt with blanks, or of the run's longest windows)"
    )
    parser.add_argument(
        "--length", metavar="N", type=number(int, 1, LONGEST), help=length
    )
    steps = "number of steps for the whole text (default and at most: one per blank)"
    parser.add_argument("--steps", metavar="K", type=number(int, 1), help=steps)
    order = "which blanks to write first: any, or those with the largest probability, the lowest"
    order += " entropy, the largest gap between the two largest probabilities, or the leftmost"
    order += " (default: %(default)s)"
    parser.add_argument("--order", choices=ORDERS, default="random", help=order)
    temperature = "below 1: more probable text; 0: the most probable tokens (default: %(default)s)"
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=number(float, 0),
        default=1.0,
        help=temperature,
    )
    remask = "probability of writing a character anew, per step (default: %(default)s)"
    share = number(float, 0, below=1)
    parser.add_argument(
        "--remask", metavar="SHARE", type=share, default=0.0, help=remask
    )
    seed = "the same seed gives the same texts (default: %(default)s)"
    parser.add_argument(
        "--seed", metavar="S", type=number(int, 0, 2**31 - 1), default=0, help=seed
    )
    n = "number of texts (default: %(default)s)"
    parser.add_argument("--n", metavar="M", type=number(int, 1), default=1, help=n)
    gif = "record how the first text is written"
    parser.add_argument("--gif", metavar="FILE", type=Path, help=gif)

    return run_script(parser, arguments, generate)


def generate(options: Namespace) -> None:
    """Write and print the texts, one after the other. Raises OSError."""
    trained = load_trained(options.run, options.logs)
    notation = Notation(options.blank, options.raw)
    template = template_of(options.prompt, options.length, trained, notation)
    ids = template.ids
    if options.gif:
        check_gif(options.gif, len(ids))
    reservation = reservation_about(trained.values)
    if reservation:
        print(f"{Path(sys.argv[0]).name}: {reservation}", file=sys.stderr, flush=True)
    vocabulary = trained.vocabulary
    sampler = Sampler(
        trained.model,
        vocabulary.mask_token,
        vocabulary.n_ordinary,
        options.order,
        options.temperature,
        options.remask,
    )
    n_steps = options.steps or len(ids)
    write_as_read()
    for i in range(options.n):
        if i:
            print(SEPARATOR, flush=True)
        generator = Generator().manual_seed(derived_seed(options.seed, f"text {i}"))
        steps = sampler.write_in_pieces(
            ids[None], n_steps, [generator], trained.longest
        )
        gif = options.gif if i == 0 else None
        show(chain([ids[None]], steps), template, gif)


def check_gif(path: Path, length: int) -> None:
    """Raise ConfigError if a text of `length` tokens cannot be recorded at a path."""
    if length > LONGEST_GIF:
        raise ConfigError(
            f"--gif records texts of at most {LONGEST_GIF:,} tokens, not {length:,}"
        )
    if path.suffix != ".gif":
        raise ConfigError(f"--gif {path} does not end with .gif")
    check_new(path, "--gif")


def show(steps: Iterable[Tensor], template: Template, gif: Path | None) -> None:
    """Print a text, in a terminal after each of its `steps` `[1, length]`, and record it as a GIF
    if a path is given."""
    views: list[Screen | Recording] = []
    if can_redraw(sys.stdout):
        views.append(Screen(sys.stdout, template))
    if gif:
        views.append(Recording(gif, template))
    for (ids,) in steps:
        for view in views:
            view.show(ids)

    if not can_redraw(sys.stdout):
        text, _ = template.filled(ids)
        print(printable(text) if sys.stdout.isatty() else text, flush=True)

    for view in views:
        view.finish(ids)


if __name__ == "__main__":
    run_main(main)
