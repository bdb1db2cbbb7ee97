"""The causal twin of a preset's model: its nats per character, for the bounds of masked models to be compared with.

python -m benchmarks.causal [--seeds 1] [--seconds 180] [--preset write] [--corpus tiny_shakespeare]

The twin (benchmarks/causal_twin.py) has the shape, the windows and the optimizer of the preset, and is trained by the
same loop for as many seconds. A masked model sees other masks each time it comes back to a text; the twin sees the same
next characters, and its table of n-grams learns them by heart. So the twin is also trained with more n-grams left out,
and without any. The best of these is the peer, which favors the twin: it is chosen on the validation text.

The loss is over all characters of the protocol's validation windows:

    nats per character = -1 / 256 sum_t log p(x_t | x_0 ... x_{t-1})      bits = nats / log 2

Each window of 256 starts without any context, as in the any-order bound of a masked model, which is a bound of the same
quantity. The standard error is over windows. The last weights are measured, not the best ones: those are chosen by
`loss.valid`, which has no meaning for a causal model.

nanoGPT's losses (1.4697 on a GPU, 1.88 by its recipe for CPUs) are means over random windows, of 64 characters in the
recipe for CPUs. There the first character of a window is context only: each prediction has 1 to 256 (64) characters
before it. Here the first prediction of a window has none.
"""

from argparse import Namespace
from collections.abc import Mapping
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.causal_twin import shifted
from benchmarks.command import preset_values, run_benchmark
from benchmarks.report import by_variant
from benchmarks.trials import COMMON, run_trials, trials_of
from configs.command_line import presets
from configs.experiment import configs_of
from data.corpus import TINY_SHAKESPEARE
from data.play.grammar import PLAY
from runs.run_folder import RunFolder
from runs.statistics import standard_error, with_error
from training.checkpoint import load_last, put_weights
from training.evaluation import CHARS_AT_ONCE

TWIN = {"model.architecture": "causal", "masking.strategy": "next_character"}
DROPOUTS = (0.5, 0.8)  # shares of the n-grams that are left out in training


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, print their losses, and write them."""
    common = COMMON | {"data.corpus": options.corpus, "training.max_seconds": options.seconds}
    trials = trials_of(variants(options.preset), common | twin_keys(options.preset), options.seeds)
    results = by_variant(run_trials(path, trials, measure, options.seconds + 45, options.preset)["trials"])
    for variant, runs in results.items():
        for seed, run in runs.items():
            print(f"{variant}, seed {seed}: {in_words(run)}")
    nats = {variant: [run["nats"] for run in runs.values()] for variant, runs in results.items()}
    best = min(nats, key=lambda variant: fmean(nats[variant]))
    mean = with_error(f"{fmean(nats[best]):.4f}", standard_error(nats[best]))
    print(f"the best twin is {best}: {mean} nats per character over {len(nats[best])} seeds")


def variants(preset: str) -> dict[str, dict[str, Any]]:
    """The twins of a preset, with their keys: one, or several that differ in how they use n-grams."""
    if preset_values(preset, {})["model.ngrams"] < 2:
        return {"the preset": {}}
    dropouts = {f"model.ngram_dropout={dropout}": {"model.ngram_dropout": dropout} for dropout in DROPOUTS}
    return {"the preset": {}, **dropouts, "model.ngrams=0": {"model.ngrams": 0}}


def twin_keys(preset: str) -> dict[str, Any]:
    """The keys that turn a preset into its twin: the same windows, of which every character is predicted."""
    stages = preset_values(preset, {})["training.stages"]
    return TWIN | {"training.stages": [{**row, "masking_prob": 1.0} for row in stages]}


def measure(run: RunFolder) -> dict[str, Any]:
    """The nats and bits per character of a run's last weights, with standard errors over windows."""
    configs = configs_of(run.config() | {"device": "cpu"})
    put_weights(configs.network, load_last(run.checkpoints).weights, run.checkpoints)
    losses = window_losses(configs.network, configs.data.validation.windows, configs.data.vocabulary.mask_token)
    nats, last = losses.mean().item(), run.metrics()[-1]
    stderr = standard_error(losses.numpy())
    return {
        "nats": nats,
        "nats_stderr": stderr,
        "bits": nats / log(2),
        "bits_stderr": None if stderr is None else stderr / log(2),
        "n_windows": len(losses),
        **{key: last[key] for key in ("loss.train", "seq_len", "chars", "seconds")},
    }


@torch.no_grad()
def window_losses(model: nn.Module, windows: Tensor, mask_token: int) -> Tensor:
    """Nats per character of each of `windows` `[n_windows, seq_len]`, float64, by a causal model in float32."""
    model.eval()
    losses = []
    for tokens in windows.split(max(1, CHARS_AT_ONCE // windows.shape[1])):
        logits = model(shifted(tokens, mask_token)).double()
        losses.append(F.cross_entropy(logits, tokens.flatten(), reduction="none").view(tokens.shape).mean(1))
    return torch.cat(losses)


def in_words(results: Mapping[str, Any]) -> str:
    """One line about a run."""
    nats, bits = (
        with_error(f"{results[unit]:.4f}", results[f"{unit}_stderr"]) + f" {unit}" for unit in ("nats", "bits")
    )
    seen = f"{results['chars'] / 1e6:.2f} M characters in {results['seconds']:.0f} s"
    return f"{nats} per character ({bits}); in training {results['loss.train']:.4f} nats; {seen}"


if __name__ == "__main__":
    words = {
        "preset": {"default": "write", "choices": presets(), "help": "the preset of the masked model (default: write)"},
        "corpus": {
            "default": TINY_SHAKESPEARE,
            "choices": (TINY_SHAKESPEARE, PLAY),
            "help": f"the text (default: {TINY_SHAKESPEARE})",
        },
    }
    run_benchmark(main, words, seeds=1, seconds=180.0)
