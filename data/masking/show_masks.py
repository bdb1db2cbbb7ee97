"""Look at what each strategy hides: a passage in colour, and the lengths and offsets of the hidden runs.

python -m data.masking.show_masks [--strategy NAME] [--corpus NAME] [--masking-prob P] [--seed N] [--png FILE]
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from data.corpus import CorpusError, load_corpus
from data.masking.masker import n_masked_in
from data.masking.mixture import Mixture
from data.masking.segmenters import Segmenter, sampling_order
from data.masking.strategies import STRATEGIES
from runs.figures import save_figure

PASSAGE, WINDOW, WINDOWS = 480, 128, 512  # characters shown; length and number of the windows that are counted
LONGEST = 12  # runs from here on are one column of the picture


def half_random_half_span(text: str) -> Segmenter:
    """Each window by one of several strategies; here half of them by random, half by span."""
    return Mixture({name: STRATEGIES[name](text) for name in ("random", "span")}, [(1.0, {"random": 1, "span": 1})])


SHOWN = STRATEGIES | {"mixture": half_random_half_span}


def main(arguments: Sequence[str]) -> int:
    """Show one strategy or all; returns the exit code."""
    parser = argparse.ArgumentParser(description="Look at what each masking strategy hides.")
    parser.add_argument("--strategy", choices=list(SHOWN), help="one of them; without it, all")
    parser.add_argument("--corpus", default="auto", help="as data.corpus")
    parser.add_argument("--masking-prob", type=float, default=0.15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--png", type=Path, help="draw the statistics into this file")
    options = parser.parse_args(arguments)
    if not 0 < options.masking_prob <= 1:
        parser.error("--masking-prob must be above 0 and at most 1")
    try:
        text = load_corpus(options.corpus).training
    except CorpusError as error:
        print(f"show_masks: {error}", file=sys.stderr)
        return 2
    if len(text) < PASSAGE + WINDOW:
        print(f"show_masks: the text has {len(text)} characters, too few to show", file=sys.stderr)
        return 2
    counted = {}
    for name in [options.strategy] if options.strategy else SHOWN:
        began = time.perf_counter()
        cut = SHOWN[name](text)
        seconds = time.perf_counter() - began
        generator = torch.Generator().manual_seed(options.seed)
        print(f"\n{name}: {' '.join((SHOWN[name].__doc__ or '').split())}")
        print(passage(text, hidden(cut, torch.arange(PASSAGE)[None], options.masking_prob, generator)[0]))
        starts = torch.randint(len(text) - WINDOW, (WINDOWS, 1), generator=generator)
        masked = hidden(cut, starts + torch.arange(WINDOW), options.masking_prob, generator)
        counted[name] = masked
        lengths = run_lengths(masked)
        print(
            f"hidden {masked.double().mean():.1%}; runs of {lengths.mean():.2f} characters on average,"
            f" the longest {lengths.max()}; prepared in {seconds:.2f} s"
        )
    if options.png:
        save_picture(options.png, counted)
    return 0


def hidden(cut: Segmenter, offsets: torch.Tensor, masking_prob: float, generator: torch.Generator) -> torch.Tensor:
    """Which characters a strategy hides in windows at `offsets` `[batch, seq_len]`, bool of the same shape."""
    units, weights = cut(offsets, generator)
    order, times = sampling_order(units, weights, torch.rand(offsets.shape, generator=generator))
    n_masked = n_masked_in(offsets.shape[1], masking_prob)
    masked = torch.zeros(offsets.shape, dtype=torch.bool)
    return masked.scatter(1, order[:, :n_masked], times[:, :n_masked].isfinite())


def passage(text: str, masked: torch.Tensor) -> str:
    """The beginning of a text with what is hidden in reverse on a terminal, in brackets elsewhere."""
    begin, end = ("\x1b[7m", "\x1b[0m") if sys.stdout.isatty() else ("[", "]")
    edges = np.diff(masked.numpy().astype(int), prepend=0, append=0)
    parts = []
    for i, edge in enumerate(edges):
        parts.append(begin if edge > 0 else end if edge < 0 else "")
        parts.append(text[i] if i < len(masked) else "")
    return "".join(parts)


def run_lengths(masked: torch.Tensor) -> np.ndarray:
    """The lengths of all runs of hidden characters in windows `[batch, seq_len]`."""
    edges = np.diff(masked.numpy().astype(int), axis=1, prepend=0, append=0)
    return np.nonzero(edges < 0)[1] - np.nonzero(edges > 0)[1]


def save_picture(path: Path, counted: dict[str, torch.Tensor]) -> None:
    """Draw, for every strategy, how long its runs are and where in the window they lie; written as a PNG."""
    figure = Figure(figsize=(9, 1.3 * len(counted) + 0.8), layout="constrained")
    rows = figure.subplots(len(counted), 2, sharex="col", squeeze=False)
    for (left, right), (name, masked) in zip(rows, counted.items(), strict=True):
        lengths = run_lengths(masked).clip(max=LONGEST)
        left.bar(range(1, LONGEST + 1), np.bincount(lengths, minlength=LONGEST + 1)[1:] / len(lengths))
        left.set_ylabel(name, rotation=0, horizontalalignment="right", verticalalignment="center")
        right.plot(masked.double().mean(0))
        right.set_ylim(0, 2 * float(masked.double().mean()))
    rows[-1, 0].set_xlabel(f"length of a hidden run ({LONGEST}: or longer)")
    rows[-1, 1].set_xlabel("place in the window, share that is hidden")
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
