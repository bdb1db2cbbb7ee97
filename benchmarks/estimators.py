"""Estimators of how well a masked model predicts text, applied to a run and to the exact posterior of the play.

python -m benchmarks.estimators [RUN] [--windows 32]        RUN: a folder, a uuid or its first characters, or `last`

The run must be on the play, whose exact nats per character are known. The expected loss of any model is at least as
large. An estimator's error for the exact posterior is its own, not that of a model. In orders, one token at a time, the
exact posterior's value is not measured: it is the exact one (see tests/writing/test_likelihood.py).
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Generator, nn

from benchmarks.command import run_benchmark, save_results
from configs.keys import ConfigError
from data.play.scoring import score
from data.protocol import ValidationSet, bound_masks
from data.reference_losses import without_counting
from runs.files import ROOT
from trained.load import load_trained
from training.evaluation import any_order_bound, evaluate
from training.measures import one_at_a_time, sweep
from writing.likelihood import order_losses
from writing.measures import ORDERS, ROUNDS, evenly_spaced
from writing.sampler import Sampler
from writing.truth import TruePosterior

Estimators = dict[str, Callable[[nn.Module], float]]  # nats per character of a model


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    trained = load_trained(options.run, ROOT / "logs")
    data = trained.data()
    if data.loaded.automaton is None or without_counting(trained.vocabulary, data.loaded):
        raise ConfigError(f"{trained.run.path} was not trained on the characters of the play: use data.corpus=play")
    if options.windows < 1:
        raise ConfigError(f"--windows {options.windows} is below 1")
    truth = TruePosterior(data.loaded.automaton, trained.vocabulary)
    windows = evenly_spaced(data.validation.windows, options.windows)
    masked = evenly_spaced(data.validation.masked, options.windows)
    some = replace(data.validation, windows=windows, masked=masked)
    exact = score(truth.floor, truth.to_floor(windows)).nats_per_character
    print(f"exact: {exact.mean():.3f} nats per character ({len(windows)} windows)")
    print(f"{'estimator':44}  run    exact posterior")
    rows = {}
    for name, estimate in estimators(some, trained.vocabulary.mask_token, trained.vocabulary.n_ordinary).items():
        of_run = estimate(trained.model)
        of_truth = float(exact.mean()) if name in in_order(ORDERS) else estimate(truth)
        rows[name] = {"run": of_run, "exact_posterior": of_truth}
        print(f"{name:44} {of_run:6.3f} {of_truth:6.3f}", flush=True)
    save_results(path, run=trained.run.path.name, exact=float(exact.mean()), windows=len(windows), estimators=rows)


def in_order(orders: tuple[str, ...]) -> dict[str, str]:
    """The names of the estimators that write in an order, each with its order."""
    return {f"written one at a time, {order}": order for order in orders}


def estimators(validation: ValidationSet, mask_token: int, n_ordinary: int) -> Estimators:
    """Every estimator by name, for the windows of `validation`."""
    windows, masks = validation.windows, bound_masks(validation, ROUNDS)

    def written(model: nn.Module, order: str) -> float:
        generators = [Generator().manual_seed(i) for i in range(len(windows))]
        return order_losses(Sampler(model, mask_token, n_ordinary, order), windows, generators).mean().item()

    found: Estimators = {name: partial(written, order=order) for name, order in in_order(ORDERS).items()}
    found["any-order bound"] = lambda model: any_order_bound(model, windows, masks, mask_token).mean().item()
    found["all masked characters, at all rates"] = lambda model: sweep(model, validation, mask_token)["uniform"]["loss"]
    found["pseudo-log-likelihood: one masked at a time"] = lambda model: one_at_a_time(model, validation, mask_token)[
        "loss"
    ]
    found["15% masked: loss.valid"] = lambda model: evaluate(model, validation, mask_token=mask_token, seq_len=256).loss
    return found


if __name__ == "__main__":
    run = {"nargs": "?", "default": "last", "metavar": "RUN"}
    windows = {"type": int, "default": 32, "metavar": "N", "help": "validation windows (default: 32)"}
    run_benchmark(torch.no_grad()(main), extra={"run": run, "windows": windows}, unnamed=["run"])
