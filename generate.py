r"""Write text with a trained run, or fill the blanks of a text.

python generate.py RUN                                          RUN: a folder, a uuid or its first characters, or `last`
python generate.py RUN --prompt "ROMEO:" --length 1000          continue a text
python generate.py RUN --prompt "To be, or ______ be" --n 5     fill its blanks in five ways

A blank is _ or [MASK]: one character, or one token of a run with other data.tokens. \_ is an underscore. The text after
the prompt begins as blanks. In each step the order chooses some of them, and each gets a token drawn from the model's
probabilities. In a terminal the text appears step by step. Elsewhere only the finished texts are printed, with a line
--- between them.
"""

import math
import os
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from configs.seeds import derived_seed
from data.vocabulary import printable
from runs.files import ROOT
from runs.knobs import masking_rates
from runs.run_folder import RunFolderError
from trained.fill import encode
from trained.load import Trained, load_trained
from training.checkpoint import CheckpointError
from writing.animation import Recording
from writing.orders import ORDERS
from writing.sampler import Sampler
from writing.terminal import Screen, can_redraw

LONGEST, LONGEST_GIF = 1_000_000, 4_000  # tokens
LARGEST_SEED = 2**31 - 1
SEPARATOR = "---"  # between texts
# A text begins as blanks only. With a highest masking rate of 70% in training, 30% of it are written while it has more
# blanks than any window in training; with a lowest rate of 30%, 30% of it while it has fewer.
HIGHEST_RATE, LOWEST_RATE = 0.7, 0.3


def main(arguments: list[str]) -> int:
    """Write texts; returns the exit code."""
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    parser.add_argument("--prompt", metavar="TEXT", default="", help="text to continue, or with blanks to fill")
    length = "of the text, prompt included (default: that of a prompt with blanks, or the run's longest windows)"
    parser.add_argument("--length", metavar="N", type=int, help=f"characters (or tokens) {length}")
    steps = "number of steps for the whole text (default and at most: one per blank)"
    parser.add_argument("--steps", metavar="K", type=int, help=steps)
    order = "which blanks to write first: any, or those with the largest probability, the lowest entropy, the largest"
    order += " gap between the two largest probabilities, or the leftmost (default: %(default)s)"
    parser.add_argument("--order", choices=ORDERS, default="random", help=order)
    temperature = "below 1: more probable text; 0: the most probable tokens (default: %(default)s)"
    parser.add_argument("--temperature", metavar="T", type=float, default=1.0, help=temperature)
    remask = "probability of writing a character anew, per step (default: %(default)s)"
    parser.add_argument("--remask", metavar="SHARE", type=float, default=0.0, help=remask)
    seed = "the same seed gives the same texts (default: %(default)s)"
    parser.add_argument("--seed", metavar="S", type=int, default=0, help=seed)
    parser.add_argument("--n", metavar="M", type=int, default=1, help="number of texts (default: %(default)s)")
    parser.add_argument("--gif", metavar="FILE", type=Path, help="record how the first text is written")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_args(arguments)
        check(options)
        trained = load_trained(options.run, options.logs)
        template = template_of(options.prompt, options.length, trained)
        if options.gif and len(template) > LONGEST_GIF:
            raise ConfigError(f"--gif records texts of at most {LONGEST_GIF:,} tokens, not {len(template):,}")
        if reservation := reservation_about(trained.values):
            print(f"{Path(sys.argv[0]).name}: {reservation}", file=sys.stderr, flush=True)
        write_texts(trained, template, options)
    except (ConfigError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except BrokenPipeError:  # the reader of the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def check(options: Namespace) -> None:
    """Raise ConfigError if an option is out of its range."""
    if options.length is not None and not 1 <= options.length <= LONGEST:
        raise ConfigError(f"--length {options.length} is out of range: it must be from 1 to {LONGEST:,}")
    if options.steps is not None and options.steps < 1:
        raise ConfigError(f"--steps {options.steps} is below 1")
    if not (options.temperature >= 0 and math.isfinite(options.temperature)):
        raise ConfigError(f"--temperature {options.temperature} is out of range: it must be finite, 0 or above")
    if not 0 <= options.remask < 1:
        raise ConfigError(f"--remask {options.remask} is out of range: it must be at least 0 and below 1")
    if options.n < 1:
        raise ConfigError(f"--n {options.n} is below 1")
    if not 0 <= options.seed <= LARGEST_SEED:
        raise ConfigError(f"--seed {options.seed} is out of range: it must be from 0 to {LARGEST_SEED}")
    if options.gif:
        if options.gif.suffix != ".gif":
            raise ConfigError(f"--gif {options.gif} does not end with .gif")
        if os.path.lexists(options.gif):
            raise ConfigError(f"--gif {options.gif} exists: remove it, or choose another name")
        if not options.gif.parent.is_dir():
            raise ConfigError(f"--gif {options.gif}: there is no folder {options.gif.parent}")


def template_of(prompt: str, length: int | None, trained: Trained) -> Tensor:
    """Token ids of a prompt, then blanks up to `length` tokens. Raises ConfigError if that is impossible."""
    try:
        ids = encode(prompt, trained)
    except ValueError as error:
        raise ConfigError(f"--prompt: {error}") from error
    mask_token = trained.vocabulary.mask_token
    has_blanks = bool((ids == mask_token).any())
    if length is None:
        length = len(ids) if has_blanks else trained.longest
    if length < len(ids):
        raise ConfigError(f"--length {length} is shorter than the prompt, which has {len(ids)} tokens")
    if length == len(ids) and not has_blanks:
        raise ConfigError(f"the prompt has no blanks and {length} tokens already: use --length for a longer text")
    return torch.cat([ids, torch.full((length - len(ids),), mask_token)])


def reservation_about(values: Mapping[str, Any]) -> str:
    """Why a run with these keys writes badly, or an empty string."""
    default = values["masking.masking_prob"]
    rates = [rate for stage in values["training.stages"] for rate in masking_rates(stage, default)]
    lowest, highest = min(rates), max(rates)
    named = f"{lowest:.0%}" if lowest == highest else f"{lowest:.0%} to {highest:.0%}"
    if highest < HIGHEST_RATE:
        how, why = f"at masking rates of {named} only", "it has never seen mostly masked text, so it writes badly"
    elif lowest > LOWEST_RATE:
        how, why = f"at masking rates of {named} only", "it has never seen text with few blanks, so it writes badly"
    elif values["masking.randomize_prob"]:
        how, why = "with random replacements", "it expects wrong characters in what it continues, so it writes worse"
    else:
        return ""
    return f"the run was trained {how}: {why}; the preset write trains at all rates"


def write_texts(trained: Trained, template: Tensor, options: Namespace) -> None:
    """Write and print the texts, one after the other. Raises OSError."""
    vocabulary, redraws = trained.vocabulary, can_redraw(sys.stdout)
    mask_token = vocabulary.mask_token
    steps = options.steps or len(template)
    sampler = Sampler(
        trained.model, mask_token, vocabulary.n_ordinary, options.order, options.temperature, options.remask
    )
    for number in range(options.n):
        if number:
            print(SEPARATOR, flush=True)
        generator = Generator().manual_seed(derived_seed(options.seed, f"text {number}"))
        screen = Screen(sys.stdout, vocabulary) if redraws else None
        recording = Recording(vocabulary) if options.gif and number == 0 else None
        written = sampler.write_in_pieces(template[None], steps, [generator], trained.longest)
        for (ids,) in chain([template[None]], written):
            if screen:
                screen.show(ids)
            if recording:
                recording.add(ids)
        if screen:
            screen.finish(ids)
        else:
            text = vocabulary.decode(ids)
            print(printable(text) if sys.stdout.isatty() else text, flush=True)
        if recording:
            recording.save(options.gif)


if __name__ == "__main__":
    run_main(main)
