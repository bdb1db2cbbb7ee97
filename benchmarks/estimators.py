"""Estimators of how well a masked model predicts text, applied to a run and to the exact posterior of the play.

python -m benchmarks.estimators [RUN] [--windows 32]        RUN: a folder, a uuid or its first characters, or `last`

The run must be on the play, whose exact nats per character are known. The expected loss of any model is at least as
large. An estimator's error for the exact posterior is its own, not that of a model. In orders, one token at a time, the
exact posterior's value is not measured: it is the exact one (see tests/writing/test_likelihood.py).

Each estimate has the difference from the exact value of the same windows, with a standard error over windows.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from benchmarks.command import run_benchmark, save_results
from configs.keys import ConfigError
from data.bound import bound_masks
from data.play.scoring import score
from data.protocol import WINDOW_LEN, ValidationSet
from data.reference_losses import without_counting
from runs.files import ROOT
from runs.statistics import standard_error, with_error
from trained.load import load_trained
from training.evaluation import any_order_bound, masked_outcomes, per_window
from writing.likelihood import order_losses
from writing.measures import ORDERS, ROUNDS, evenly_spaced
from writing.sampler import Sampler
from writing.truth import TruePosterior

Estimate = tuple[Tensor, Tensor]  # losses in nats and numbers of predicted characters, of each window
Estimators = dict[str, Callable[[nn.Module], Estimate]]
ALONE_STEP = 8  # the pseudo-log-likelihood masks every eighth character


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    trained = load_trained(options.run, ROOT / "logs")
    data = trained.data()
    if data.loaded.automaton is None or without_counting(trained.vocabulary, data.loaded):
        raise ConfigError(f"{trained.run.path} was not trained on the characters of the play: use data.corpus=play")
    if options.windows < 2:
        raise ConfigError(f"--windows {options.windows} is below 2")
    truth = TruePosterior(data.loaded.automaton, trained.vocabulary)
    windows = evenly_spaced(data.validation.windows, options.windows)
    some = ValidationSet(windows, evenly_spaced(data.validation.masked, options.windows))
    exact = score(truth.floor, truth.to_floor(windows)).nats_per_character
    print(f"exact: {with_error(f'{exact.mean():.3f}', standard_error(exact.numpy()))} nats per character")
    print(f"{'estimator':50} {'run':>6} {'minus exact':>15}   {'posterior':>9} {'minus exact':>15}")
    rows = {}
    for name, estimate in estimators(some, trained.vocabulary.mask_token, trained.vocabulary.n_ordinary).items():
        exact_again = (exact * WINDOW_LEN, torch.full_like(exact, WINDOW_LEN))
        rows[name] = {
            "run": compared(estimate(trained.model), exact),
            "exact_posterior": compared(exact_again if name in in_order(ORDERS) else estimate(truth), exact),
        }
        print(f"{name:50} " + "   ".join(map(in_words, rows[name].values())), flush=True)
    save_results(path, run=trained.run.path.name, exact=float(exact.mean()), windows=len(windows), estimators=rows)


def compared(estimate: Estimate, exact: Tensor) -> dict[str, float | None]:
    """An estimate in nats per character, and its difference from the exact value `[n_windows]` of the windows."""
    losses, counts = estimate
    nats = losses.sum() / counts.sum()
    residuals = (losses - nats * counts) / counts.double().mean() - (exact - exact.mean())
    error = nats - exact.mean()
    return {"nats": nats.item(), "error": error.item(), "error_stderr": standard_error(residuals.numpy())}


def in_words(row: dict[str, float | None]) -> str:
    """The cells of one model."""
    error = with_error(f"{row['error']:+.3f}", row["error_stderr"])
    return f"{row['nats']:6.3f} {error:>15}"


def in_order(orders: tuple[str, ...]) -> dict[str, str]:
    """The names of the estimators that write in an order, each with its order."""
    return {f"written one at a time, {order}": order for order in orders}


def estimators(validation: ValidationSet, mask_token: int, n_ordinary: int) -> Estimators:
    """Every estimator by name, for the windows of `validation`."""
    windows, masks = validation.windows, bound_masks(validation, ROUNDS)
    alone = torch.eye(WINDOW_LEN, dtype=torch.bool)[::ALONE_STEP, None].expand(-1, len(windows), -1)
    whole = torch.full((len(windows),), WINDOW_LEN)

    def written(model: nn.Module, order: str) -> Estimate:
        generators = [Generator().manual_seed(i) for i in range(len(windows))]
        return order_losses(Sampler(model, mask_token, n_ordinary, order), windows, generators).sum(1), whole

    def masked(model: nn.Module, masks: Tensor) -> Estimate:
        """Over all masked characters of `masks` `[n_masks, n_windows, seq_len]`."""
        repeated, hidden = windows.repeat(len(masks), 1), masks.flatten(0, 1)
        losses, _ = per_window(masked_outcomes(model, repeated, hidden, mask_token), hidden)
        return losses.view(len(masks), -1).sum(0), masks.sum((0, 2))

    found: Estimators = {name: partial(written, order=order) for name, order in in_order(ORDERS).items()}
    found["any-order bound"] = lambda model: (any_order_bound(model, windows, masks, mask_token) * WINDOW_LEN, whole)
    found["the bound's masks, all masked characters alike"] = partial(masked, masks=masks)
    found["pseudo-log-likelihood: one masked at a time"] = partial(masked, masks=alone)
    found["15% masked: loss.valid"] = partial(masked, masks=validation.masked[None])
    return found


if __name__ == "__main__":
    run = {"nargs": "?", "default": "last", "metavar": "RUN"}
    windows = {"type": int, "default": 32, "metavar": "N", "help": "validation windows (default: 32)"}
    run_benchmark(torch.no_grad()(main), extra={"run": run, "windows": windows}, unnamed=["run"])
