"""Shows the masks of each strategy: a passage of the training text, and the statistics of the
hidden runs.

python -m data.masking.show_masks [--strategy NAME] [--corpus NAME] [--masking-prob P] [--seed N]
[--png FILE]
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from data.corpus import CorpusError, load_corpus
from data.masking.masker import n_masked_in
from data.masking.sampling import sampling_order
from data.masking.segmenters import Segmenter
from data.masking.strategies import STRATEGIES
from data.masking.units import Mixture
from runs.figures import save_figure
from runs.terminal import printable

# characters shown; length and number of the windows for the statistics
PASSAGE, WINDOW, WINDOWS = 480, 128, 512
LONGEST = 12  # the last column of the picture holds runs of this length and longer


def half_random_half_span(text: str) -> Segmenter:
    """Each window by one of several strategies, here half of them by random and half by span."""
    return Mixture(
        {name: STRATEGIES[name](text) for name in ("random", "span")},
        [(1.0, {"random": 1, "span": 1})],
    )


SHOWN = STRATEGIES | {"mixture": half_random_half_span}


def main(arguments: Sequence[str]) -> int:
    """Show one strategy or all; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="show_masks", usage=argparse.SUPPRESS, description=__doc__
    )
    parser.add_argument(
        "--strategy", choices=list(SHOWN), help="show one strategy only"
    )
    parser.add_argument("--corpus", default="auto", help="the text, as for data.corpus")
    parser.add_argument(
        "--masking-prob",
        type=float,
        default=0.15,
        help="share of the characters that are hidden",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of every random draw")
    parser.add_argument("--png", type=Path, help="draw the statistics into this file")
    options = parser.parse_args(arguments)
    if not 0 < options.masking_prob <= 1:
        parser.error("--masking-prob must be above 0 and at most 1")
    if not 0 <= options.seed < 2**63:
        parser.error("--seed must be from 0 to 2^63 - 1")
    try:
        text = load_corpus(options.corpus).training
        if len(text) < PASSAGE + WINDOW:
            raise CorpusError(
                f"the training text has {len(text)} characters: {PASSAGE + WINDOW} are shown"
            )
        masks = {
            name: show(name, text, options)
            for name in ([options.strategy] if options.strategy else SHOWN)
        }
        if options.png:
            save_picture(options.png, masks)
    except (CorpusError, OSError) as error:
        parser.error(printable(" ".join(str(error).split())))
    return 0


def show(name: str, text: str, options: argparse.Namespace) -> torch.Tensor:
    """Print what a strategy hides; returns its masks in `WINDOWS` random windows, bool `[WINDOWS,
    WINDOW]`."""
    began = time.perf_counter()
    segmenter = SHOWN[name](text)
    seconds = time.perf_counter() - began
    generator = torch.Generator().manual_seed(options.seed)
    print(f"\n{name}: {' '.join((SHOWN[name].__doc__ or '').split())}")
    print(
        passage(
            text,
            hidden(
                segmenter, torch.arange(PASSAGE)[None], options.masking_prob, generator
            )[0],
        )
    )
    starts = torch.randint(len(text) - WINDOW, (WINDOWS, 1), generator=generator)
    masked = hidden(
        segmenter, starts + torch.arange(WINDOW), options.masking_prob, generator
    )
    lengths = run_lengths(masked)
    print(
        f"hidden {masked.double().mean():.1%}; runs of {lengths.mean():.2f} characters on average,"
        f" the longest {lengths.max()}; prepared in {seconds:.2f} s"
    )
    return masked


def hidden(
    segmenter: Segmenter,
    offsets: torch.Tensor,
    masking_prob: float,
    generator: torch.Generator,
) -> torch.Tensor:
    """Which characters are hidden in windows at `offsets` `[batch, seq_len]`, bool `[batch,
    seq_len]`."""
    units, weights = segmenter(offsets, generator, 0.0)
    order, times = sampling_order(
        units, weights, torch.rand(offsets.shape, generator=generator)
    )
    n_masked = n_masked_in(offsets.shape[1], masking_prob)
    masked = torch.zeros(offsets.shape, dtype=torch.bool)
    return masked.scatter(1, order[:, :n_masked], times[:, :n_masked].isfinite())


def passage(text: str, masked: torch.Tensor) -> str:
    """The beginning of a text, with hidden characters in reverse video on a terminal and in
    brackets elsewhere."""
    begin, end = ("\x1b[7m", "\x1b[0m") if sys.stdout.isatty() else ("[", "]")
    edges = np.diff(masked.numpy().astype(int), prepend=0, append=0)
    parts = []
    for character, edge in zip(
        [*map(printable, text[: len(masked)]), ""], edges, strict=True
    ):
        parts.append({1: begin, -1: end, 0: ""}[int(edge)] + character)
    return "".join(parts)


def run_lengths(masked: torch.Tensor) -> np.ndarray:
    """The lengths of all runs of hidden characters in windows `[batch, seq_len]`."""
    edges = np.diff(masked.numpy().astype(int), axis=1, prepend=0, append=0)
    return np.nonzero(edges < 0)[1] - np.nonzero(edges > 0)[1]


def save_picture(path: Path, masks: dict[str, torch.Tensor]) -> None:
    """Draw the lengths of the hidden runs of each strategy and where in the window they are, as a
    PNG."""
    figure = Figure(figsize=(9, 1.3 * len(masks) + 0.8), layout="constrained")
    rows = figure.subplots(len(masks), 2, sharex="col", squeeze=False)
    for (left, right), (name, masked) in zip(rows, masks.items(), strict=True):
        lengths = run_lengths(masked).clip(max=LONGEST)
        left.bar(
            range(1, LONGEST + 1),
            np.bincount(lengths, minlength=LONGEST + 1)[1:] / len(lengths),
        )
        left.set_ylabel(
            name, rotation=0, horizontalalignment="right", verticalalignment="center"
        )
        right.plot(masked.double().mean(0))
        right.set_ylim(0, 2 * float(masked.double().mean()))
    rows[-1, 0].set_xlabel(f"length of a hidden run ({LONGEST}: or longer)")
    rows[-1, 1].set_xlabel("column of the window, share that is hidden")
    save_figure(path, figure)


if __name__ == "__main__":
    # end quietly when the reader of the output goes, as `head` does
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
