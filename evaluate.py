"""Measure trained runs, one or several side by side.

python evaluate.py RUN [RUN ...] [--writing]        RUN: a folder, a uuid or its first characters,
or `last` python evaluate.py RUN [RUN ...] --tasks            only the tasks that finetune.py has
learned
"""

import math
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from configs.command_line.command import ignored_in_comparisons
from configs.command_line.program import run_main
from configs.command_line.scripts import run_parser, run_script
from configs.devices import best_device
from data.references.losses import without_counting
from data.vocabulary import UNK, Vocabulary
from runs import statistics
from runs.curves import save_measures
from runs.files import write_json
from runs.find import find_run
from runs.schema import read_object
from trained.load import Trained, choose_threads, load
from trained.measures import Measure, breakdown, counting_sweep, hard_masks, one_at_a_time, sweep
from trained.task_results import print_tasks
from training.callbacks.per_character import per_character
from training.evaluation import evaluate
from writing.measures import bound, grammar_measures, in_orders, likelihood, n_characters
from writing.phenomena import excess_by_phenomenon, known_characters

Results = dict[str, Any]  # the content of evaluation.json


class Measured(NamedTuple):
    """A run and its measures."""

    trained: Trained
    results: Results
    window_losses: dict[str, np.ndarray]  # [n_windows], by the measures in which runs are compared


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__, "runs", nargs="+")
    writing = "also measure how well the runs write, which takes a minute or more per run"
    parser.add_argument("--writing", action="store_true", help=writing)
    tasks = "print the scores of the tasks that finetune.py has learned, and measure nothing"
    parser.add_argument("--tasks", action="store_true", help=tasks)
    return run_script(parser, arguments, measure_runs)


def measure_runs(options: Namespace) -> None:
    """Measure the runs one after the other, and compare them."""
    found = [find_run(name, options.logs) for name in options.runs]
    if options.tasks:
        for run in found:
            print(f"\n{run.path.parent.name}/{run.path.name}")
            print_tasks(run.path)
        return
    measured, most = list[Measured](), torch.get_num_threads()
    for run in {run.path: run for run in found}.values():
        trained = load(run, best_device())
        choose_threads(trained, most)
        measured.append(measure(trained, options.writing))
    if len({each.trained.run.corpus()["sha256"] for each in measured}) > 1:
        print("\nno comparison: the runs were trained and measured on different texts")
    elif len({predicted_tokens(each.trained.vocabulary) for each in measured}) > 1:
        print_per_character(measured)
    elif len(measured) > 1:
        print_comparison(measured)


def measure(trained: Trained, with_writing: bool) -> Measured:
    """Print the tables of one run, and write evaluation.json and evaluation.png into its folder."""
    run, model, vocabulary, data = trained.run, trained.model, trained.vocabulary, trained.data()
    validation = data.validation
    print(f"\n{run.path.parent.name}/{run.path.name}  ({data.loaded.name})", flush=True)
    print("  measuring: protocol", end="", flush=True)
    protocol = evaluate(
        model, validation, mask_token=vocabulary.mask_token, seq_len=validation.windows.shape[1]
    )
    references = run.reference_lines()
    results: Results = {
        "loss.valid": protocol.loss,
        "loss.valid_stderr": protocol.loss_stderr,
        "accuracy.valid": protocol.accuracy,
        "reference_lines": references,
    } | breakdown(protocol.outcomes, validation, vocabulary)
    results |= per_character(protocol, validation, vocabulary.lengths)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "masking_rates": lambda: sweep(model, validation, vocabulary.mask_token),
        "counting": lambda: counting_sweep(
            vocabulary.encode(data.loaded.training), validation, vocabulary.n_ordinary
        ),
        "one_at_a_time": lambda: one_at_a_time(model, validation, vocabulary.mask_token),
        "hard_masks": lambda: hard_masks(model, validation, vocabulary),
    }
    why_not, automaton = without_counting(vocabulary, data.loaded), data.loaded.automaton
    if why_not:
        del measures["counting"]
    if automaton and not why_not:
        measures["phenomena"] = lambda: excess_by_phenomenon(
            model, known_characters(validation, vocabulary), vocabulary.mask_token
        )
    if with_writing:
        measures["orders"] = lambda: in_orders(trained, validation)
        if automaton and not why_not:
            measures["grammar"] = lambda: grammar_measures(automaton, trained, validation)
    print(", bound", end="", flush=True)
    bound_losses = bound(trained, validation)
    results["bound"] = likelihood(bound_losses, validation.windows, vocabulary)
    for name, compute in measures.items():
        print(f", {name.replace('_', ' ')}", end="", flush=True)
        results[name] = compute()
    print(f"\n  {why_not}" if why_not else "", flush=True)
    if "floor" in references:
        results["excess"] = protocol.loss - references["floor"]
    print_tables(results)
    path = run.path / "evaluation.json"
    earlier = read_object(path, {}) if path.exists() else {}
    # With the same loss, what an earlier --writing measured is kept. Last digits depend on the
    # number of threads.
    is_same = math.isclose(earlier.get("loss.valid") or math.nan, protocol.loss, rel_tol=1e-6)
    write_json(path, (earlier if is_same else {}) | results, indent=2)
    save_measures(run.path / "evaluation.png", results, run.path.name)
    bounds = bound_losses / n_characters(validation.windows, vocabulary)
    of_windows = {
        "loss.valid": protocol.window_losses / validation.n_masked,
        "any-order bound": bounds.numpy(),
    }
    return Measured(trained, results, of_windows)


def print_tables(results: dict[str, Any]) -> None:
    loss = statistics.with_error(f"{results['loss.valid']:.4f}", results["loss.valid_stderr"])
    print(f"  protocol             loss {loss} nats, accuracy {results['accuracy.valid']:.1%}")
    if "bits_per_character" in results:
        nats, bits = results["loss.valid_per_character"], results["bits_per_character"]
        print(f"  per character        loss {nats:.4f} nats, {bits:.4f} bits")
    print(
        "  reference losses     "
        + ", ".join(f"{k} {v:.3f}" for k, v in results["reference_lines"].items())
    )
    if "excess" in results:
        print(f"  excess               {results['excess']:.4f} nats above the floor")
    print_writing(results)
    for name, row in {"one at a time": results["one_at_a_time"], **results["hard_masks"]}.items():
        print(f"  {name:18}   {_row(row)}   ({row['n']:,})")
    counting = results.get("counting", {})
    print(f"  masked at random     model{'            counting' if counting else ''}")
    for name, row in results["masking_rates"].items():
        print(f"    {name:18} {_row(row)}" + (f"   {_row(counting[name])}" if counting else ""))
    unit = "token" if "bits_per_character" in results else "character"
    for title, table in ((f"masked {unit}", "by_class"), ("nearest visible", "by_distance")):
        print(f"  {title}")
        for name, row in results[table].items():
            print(f"    {name:18} {_row(row)}   ({row['n']:,})")
    if "phenomena" in results:
        print("  excess by phenomenon")
    for name, row in results.get("phenomena", {}).items():
        excess = statistics.with_error(f"{row['excess']:.4f}", row["stderr"])
        print(f"    {name:22} {excess} nats above a floor of {row['floor']:.3f}   ({row['n']:,})")


def print_writing(results: dict[str, Any]) -> None:
    """Print how well one run writes, as far as it was measured."""
    print(f"  any-order bound      {_likelihood(results['bound'])}")
    for order, row in results.get("orders", {}).items():
        print(f"    {order:18} {_likelihood(row)}   ({row['n']} windows)")
    if grammar := results.get("grammar"):
        print(
            f"    the grammar itself {_likelihood(grammar['exact'])}; entropy rate {grammar['entropy_rate']:.4f}"
        )
        print("  written texts        impossible   cuts per 1,000 characters   nats per character")
        for name, row in grammar["texts"].items():
            cuts = statistics.with_error(f"{row['cuts']:.1f}", row["cuts_stderr"])
            print(
                f"    {name:26} {row['impossible']:4.0%}         {cuts:>12}   {row['nats']:18.3f}"
            )


def print_comparison(measured: list[Measured]) -> None:
    """Print how each group of runs that differ only in their seed compares with the first group."""
    configs = [
        each.trained.values | {"device": each.trained.run.config().get("device")}
        for each in measured
    ]
    for name in measured[0].window_losses:
        losses = [each.window_losses[name] for each in measured]
        groups = statistics.group_by_settings(configs, losses, ignored_in_comparisons())
        print(f"\nside by side ({name}, nats)")
        if name == "loss.valid":
            for key, values in statistics.differing_keys(groups).items():
                print(f"  {key:24} " + "   ".join(f"{value!s:>18}" for value in values))
            if n_left_out := len(measured) - sum(len(group.losses) for group in groups):
                print(
                    f"  left out: {n_left_out} of {len(measured)} runs, with the settings and seed of an earlier one"
                )
        for number, group in enumerate(groups, start=1):
            n, mean = len(group.losses), f"{group.losses.mean():.4f}"
            loss = statistics.with_error(mean, statistics.standard_error(group.losses))
            versus_first = f"; against group 1 {_versus(group, groups[0])}" if number > 1 else ""
            print(f"  group {number}: {loss} ({n} seed{'s' * (n > 1)}){versus_first}")


def predicted_tokens(vocabulary: Vocabulary) -> str:
    """Equal for two runs on the same text if the validation protocol masks the same parts of it."""
    ignored = (
        {"special_tokens"} if UNK in vocabulary.special_tokens else {"special_tokens", "characters"}
    )
    return repr(
        {key: value for key, value in vocabulary.description().items() if key not in ignored}
    )


def print_per_character(measured: list[Measured]) -> None:
    """Print the losses of runs with different tokens; their windows and masks differ, so there is
    no verdict."""
    print(
        "\nside by side, per character (the runs have different tokens, windows and masks: no verdict)"
    )
    for trained, results, _ in measured:
        nats = results.get("loss.valid_per_character") or results["loss.valid"]
        name, tokens = trained.run.path.name[:8], trained.values["data.tokens"]
        print(f"  {name}  {nats:.4f} nats  {nats / math.log(2):.4f} bits  data.tokens={tokens}")


def _likelihood(row: Mapping[str, Any]) -> str:
    nats = statistics.with_error(f"{row['nats']:.4f}", row["stderr"])
    return f"{nats} nats, {row['bits']:.4f} bits per character"


def _versus(group: statistics.Group, first: statistics.Group) -> str:
    """The difference, and what it covers: the settings with any seed, or only these trained weights
    on this text."""
    over_seeds = statistics.seed_difference(group, first)
    if over_seeds is not None:
        p = over_seeds.p_value
        sure = (
            "" if p is None else f" (p {'=' if p >= 0.001 else '<'} {max(p, 0.001):.3f} over seeds)"
        )
        return f"{statistics.with_error(f'{over_seeds.mean:+.4f}', over_seeds.stderr)}: {over_seeds.verdict}{sure}"
    over_windows = statistics.paired_difference(group.window_losses, first.window_losses)
    mean, margin = over_windows.mean, over_windows.margin
    text = f"{mean:+.4f}: no verdict on the settings, which needs two seeds per group"
    if margin is not None:
        interval = f"{mean - margin:+.4f} to {mean + margin:+.4f}"
        text += f" (95% interval for these trained weights on this text alone: {interval})"
    return text


def _row(row: Measure) -> str:
    return (
        "     -       -" if row["loss"] is None else f"{row['loss']:6.4f}  {row['accuracy']:6.1%}"
    )


if __name__ == "__main__":
    run_main(main)
