r"""Write text with a trained run, or fill the blanks of a text.

python generate.py RUN                                          RUN: a folder, a uuid or its first
characters, or `last` python generate.py RUN --prompt "ROMEO:" --length 1000          continue a
text python generate.py RUN --prompt "To be, or ______ be" --n 5     fill its blanks in five ways

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an
underscore. The text after the prompt begins as blanks. In each step the order chooses some of them,
and each gets a token drawn from the model's probabilities. In a terminal the text appears step by
step. Elsewhere only the finished texts are printed, with a line --- between them.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from configs.command_line.program import run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from configs.seeds import derived_seed
from runs.terminal import printable
from trained.fill import encode, with_unknown
from trained.load import Trained, load_trained
from trained.saved_classifier import check_new
from training.schedule import masking_rates
from writing.animation import Recording
from writing.sampler import ORDERS, Sampler
from writing.terminal import Screen, can_redraw

LONGEST, LONGEST_GIF = 1_000_000, 4_000  # tokens
SEPARATOR = "---"  # between texts
# Writing begins with blanks alone. In the first 30% of it, a text has more blanks than any window
# of a training with rates up to 70%. In the last 30%, it has fewer blanks than any window of a
# training with rates from 30%.
HIGHEST_RATE, LOWEST_RATE = 0.7, 0.3


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__)
    parser.add_argument(
        "--prompt", metavar="TEXT", default="", help="text to continue, or with blanks to fill"
    )
    length = "characters (or tokens) of the text, prompt included"
    length += " (default: those of a prompt with blanks, or of the run's longest windows)"
    parser.add_argument("--length", metavar="N", type=number(int, 1, LONGEST), help=length)
    steps = "number of steps for the whole text (default and at most: one per blank)"
    parser.add_argument("--steps", metavar="K", type=number(int, 1), help=steps)
    order = "which blanks to write first: any, or those with the largest probability, the lowest entropy, the largest"
    order += " gap between the two largest probabilities, or the leftmost (default: %(default)s)"
    parser.add_argument("--order", choices=ORDERS, default="random", help=order)
    temperature = "below 1: more probable text; 0: the most probable tokens (default: %(default)s)"
    parser.add_argument(
        "--temperature", metavar="T", type=number(float, 0), default=1.0, help=temperature
    )
    remask = "probability of writing a character anew, per step (default: %(default)s)"
    parser.add_argument(
        "--remask", metavar="SHARE", type=number(float, 0, below=1), default=0.0, help=remask
    )
    seed = "the same seed gives the same texts (default: %(default)s)"
    parser.add_argument("--seed", metavar="S", type=number(int, 0, 2**31 - 1), default=0, help=seed)
    n = "number of texts (default: %(default)s)"
    parser.add_argument("--n", metavar="M", type=number(int, 1), default=1, help=n)
    parser.add_argument(
        "--gif", metavar="FILE", type=Path, help="record how the first text is written"
    )
    return run_script(parser, arguments, generate)


def generate(options: Namespace) -> None:
    trained = load_trained(options.run, options.logs)
    template = template_of(options.prompt, options.length, trained)
    if options.gif:
        check_gif(options.gif, len(template))
    if reservation := reservation_about(trained.values):
        print(f"{Path(sys.argv[0]).name}: {reservation}", file=sys.stderr, flush=True)
    write_texts(trained, template, options)


def check_gif(path: Path, length: int) -> None:
    """Raise ConfigError if a text of `length` tokens cannot be recorded at a path."""
    if length > LONGEST_GIF:
        raise ConfigError(f"--gif records texts of at most {LONGEST_GIF:,} tokens, not {length:,}")
    if path.suffix != ".gif":
        raise ConfigError(f"--gif {path} does not end with .gif")
    check_new(path, "--gif")


def template_of(prompt: str, length: int | None, trained: Trained) -> Tensor:
    """Token ids of a prompt, then blanks up to `length` tokens. Raises ConfigError if that is
    impossible."""
    try:
        ids = encode(prompt, trained, most_blanks=LONGEST)
    except ValueError as error:
        raise ConfigError(f"--prompt: {error}") from error
    mask_token = trained.vocabulary.mask_token
    has_blanks = bool((ids == mask_token).any())
    if length is None:
        length = len(ids) if has_blanks else max(len(ids), trained.longest)
    if length < len(ids):
        raise ConfigError(
            f"--length {length} is shorter than the prompt, which has {len(ids)} tokens"
        )
    if length == len(ids) and not has_blanks:
        raise ConfigError(
            f"the prompt has no blanks and {length} tokens already: use --length for a longer text"
        )
    return torch.cat([ids, torch.full((length - len(ids),), mask_token)])


def reservation_about(values: Mapping[str, Any]) -> str:
    """Why a run with these keys writes badly, or an empty string."""
    default = values["masking.masking_prob"]
    rates = [rate for stage in values["training.stages"] for rate in masking_rates(stage, default)]
    lowest, highest = min(rates), max(rates)
    named = f"{lowest:.0%}" if lowest == highest else f"{lowest:.0%} to {highest:.0%}"
    if highest < HIGHEST_RATE:
        how, why = (
            f"at masking rates of {named} only",
            "it has never seen mostly masked text, so it writes badly",
        )
    elif lowest > LOWEST_RATE:
        how, why = (
            f"at masking rates of {named} only",
            "it has never seen text with few blanks, so it writes badly",
        )
    elif values["masking.randomize_prob"]:
        how, why = (
            "with random replacements",
            "it expects wrong characters in what it continues, so it writes worse",
        )
    else:
        return ""
    return f"the run was trained {how}: {why}; the preset write trains at all rates"


def write_texts(trained: Trained, template: Tensor, options: Namespace) -> None:
    """Write and print the texts, one after the other. Raises OSError."""
    vocabulary, redraws = trained.vocabulary, can_redraw(sys.stdout)
    settings = options.order, options.temperature, options.remask
    sampler = Sampler(trained.model, vocabulary.mask_token, vocabulary.n_ordinary, *settings)
    for i in range(options.n):
        if i:
            print(SEPARATOR, flush=True)
        views: list[Screen | Recording] = (
            [Screen(sys.stdout, vocabulary, options.prompt)] if redraws else []
        )
        if options.gif and i == 0:
            views.append(Recording(options.gif, vocabulary))
        generator = Generator().manual_seed(derived_seed(options.seed, f"text {i}"))
        steps = sampler.write_in_pieces(
            template[None], options.steps or len(template), [generator], trained.longest
        )
        for (ids,) in chain([template[None]], steps):
            for view in views:
                view.show(ids)
        if not redraws:
            text = with_unknown(vocabulary.decode(ids), options.prompt, vocabulary)
            print(printable(text) if sys.stdout.isatty() else text, flush=True)
        for view in views:
            view.finish(ids)


if __name__ == "__main__":
    run_main(main)
