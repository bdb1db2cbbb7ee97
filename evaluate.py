"""Measure trained runs, one or several side by side.

python evaluate.py RUN [RUN ...] [--writing]        RUN: a folder, a uuid or its first characters, or `last`
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.command_line import ignored_in_comparisons, read_config, resolve
from configs.data import DataConfigs
from configs.devices import best_device
from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from data.corpus import CorpusError
from data.reference_losses import without_counting
from data.vocabulary import UNK
from runs import statistics
from runs.curves import save_measures
from runs.files import ROOT, write_json
from runs.find import find_run
from runs.run_files import read_object
from runs.run_folder import RunFolder, RunFolderError
from trained.load import Trained, load_trained
from training.checkpoint import CheckpointError
from training.evaluation import evaluate, per_character
from training.measures import Measure, breakdown, counting_sweep, hard_masks, one_at_a_time, sweep
from writing.measures import bound, grammar_measures, in_orders, likelihood, n_characters
from writing.phenomena import excess_by_phenomenon


def main(arguments: list[str]) -> int:
    """Measure the runs that the command line names; returns the exit code."""
    parser = OneLineParser(description="Measure trained runs, one or several side by side.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    writing = "also measure how well the runs write, which takes a minute or more per run"
    parser.add_argument("--writing", action="store_true", help=writing)
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_args(arguments)
        found = [find_run(name, options.logs) for name in options.runs]
        runs = list({run.path: run for run in found}.values())
        window_losses = []
        for run in runs:
            trained = load_trained(str(run.path), device=best_device())
            data = trained.data()
            print(f"\n{run.path.parent.name}/{run.path.name}  ({data.loaded.name})", flush=True)
            window_losses.append(measure(trained, data, with_writing=options.writing))
    except (ConfigError, CorpusError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    if len(runs) > 1:
        print_comparison(runs, window_losses)
    return 0


def measure(trained: Trained, data: DataConfigs, with_writing: bool) -> dict[str, np.ndarray]:
    """Print the tables of one run, and write evaluation.json and evaluation.png into its folder.

    Returns losses of each window `[n_windows]` by the names of the measures in which runs are compared.
    """
    run, model, vocabulary, validation = trained.run, trained.model, trained.vocabulary, data.validation
    print("  measuring: protocol", end="", flush=True)
    protocol = evaluate(model, validation, mask_token=vocabulary.mask_token, seq_len=validation.windows.shape[1])
    references = run.reference_lines()
    results: dict[str, Any] = {
        "loss.valid": protocol.loss,
        "loss.valid_stderr": protocol.loss_stderr,
        "accuracy.valid": protocol.accuracy,
        "reference_lines": references,
    } | breakdown(protocol.outcomes, validation, vocabulary)
    if protocol.per_character is not None:
        results |= per_character(protocol.per_character)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "masking_rates": lambda: sweep(model, validation, vocabulary.mask_token),
        "counting": lambda: counting_sweep(vocabulary.encode(data.loaded.training), validation, vocabulary.n_ordinary),
        "one_at_a_time": lambda: one_at_a_time(model, validation, vocabulary.mask_token),
        "hard_masks": lambda: hard_masks(model, validation, vocabulary),
    }
    why_not, automaton = without_counting(vocabulary, data.loaded), data.loaded.automaton
    if why_not:
        del measures["counting"]
    if automaton and not why_not:
        measures["phenomena"] = lambda: excess_by_phenomenon(model, validation, vocabulary)
    if with_writing:
        measures["orders"] = lambda: in_orders(trained, validation)
        if automaton and not why_not:
            measures["grammar"] = lambda: grammar_measures(automaton, trained, validation)
    print(", bound", end="", flush=True)
    bound_losses = bound(trained, validation)
    results["bound"] = likelihood(bound_losses, validation.windows, trained, validation)
    for name, compute in measures.items():
        print(f", {name.replace('_', ' ')}", end="", flush=True)
        results[name] = compute()
    print(f"\n  {why_not}" if why_not else "", flush=True)
    if "floor" in references:
        results["excess"] = protocol.loss - references["floor"]
    print_tables(results)
    path = run.path / "evaluation.json"
    earlier = read_object(path, {}) if path.exists() else {}
    is_same = earlier.get("loss.valid") == protocol.loss  # then what --writing measured is kept
    write_json(path, (earlier if is_same else {}) | results, indent=2)
    save_measures(run.path / "evaluation.png", results, run.path.name)
    bounds = bound_losses / n_characters(validation.windows, trained, validation)
    return {"loss.valid": protocol.window_losses / validation.n_masked, "any-order bound": bounds.numpy()}


def print_tables(results: dict[str, Any]) -> None:
    """Print the tables of one run."""
    loss = statistics.with_error(f"{results['loss.valid']:.4f}", results["loss.valid_stderr"])
    print(f"  protocol             loss {loss} nats, accuracy {results['accuracy.valid']:.1%}")
    if "bits_per_character" in results:
        nats, bits = results["loss.valid_per_character"], results["bits_per_character"]
        print(f"  per character        loss {nats:.4f} nats, {bits:.4f} bits")
    print("  reference losses     " + ", ".join(f"{k} {v:.3f}" for k, v in results["reference_lines"].items()))
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
        print(f"    the grammar itself {_likelihood(grammar['exact'])}; entropy rate {grammar['entropy_rate']:.4f}")
        print("  written texts        impossible   cuts per 1,000 characters   nats per character")
        for name, row in grammar["texts"].items():
            cuts = statistics.with_error(f"{row['cuts']:.1f}", row["cuts_stderr"])
            print(f"    {name:26} {row['impossible']:4.0%}         {cuts:>12}   {row['nats']:18.3f}")


def print_comparison(runs: list[RunFolder], window_losses: list[dict[str, np.ndarray]]) -> None:
    """Print how each group of runs that differ only in their seed compares with the first group."""
    if len({run.corpus()["sha256"] for run in runs}) > 1:
        print("\nno comparison: the runs were trained and measured on different texts")
        return
    configs = [resolve(read_config(run.config_path), {}) for run in runs]  # fills in keys that are newer than a run
    if any(predicted_tokens(run) != predicted_tokens(runs[0]) for run in runs):
        print_per_character(runs, configs)
        return
    for measured in window_losses[0]:
        losses = [of_run[measured] for of_run in window_losses]
        groups = statistics.group_by_settings(configs, losses, ignored_in_comparisons())
        print(f"\nside by side ({measured}, nats)")
        if measured == "loss.valid":
            for key, values in statistics.differing_keys(groups).items():
                print(f"  {key:24} " + "   ".join(f"{value!s:>18}" for value in values))
        for number, group in enumerate(groups, start=1):
            n, mean = len(group.losses), f"{group.losses.mean():.4f}"
            loss = statistics.with_error(mean, statistics.standard_error(group.losses))
            versus_first = f"; against group 1 {_versus(group, groups[0])}" if number > 1 else ""
            print(f"  group {number}: {loss} ({n} seed{'s' * (n > 1)}){versus_first}")


def predicted_tokens(run: RunFolder) -> Any:
    """Equal for two runs on the same text if the validation protocol masks the same parts of it."""
    vocabulary = run.vocabulary()
    has_unknown = UNK in vocabulary["special_tokens"]
    return vocabulary.get("tokens"), vocabulary.get("tokenizer"), has_unknown and vocabulary.get("characters")


def print_per_character(runs: list[RunFolder], configs: list[dict[str, Any]]) -> None:
    """Print the losses of runs with different tokens; their windows and masks differ, so there is no verdict."""
    print("\nside by side, per character (the runs have different tokens, windows and masks: no verdict)")
    for run, config in zip(runs, configs, strict=True):
        results = read_object(run.path / "evaluation.json", {"loss.valid": float})
        row = per_character(results.get("loss.valid_per_character", results["loss.valid"]))
        nats, bits = row.values()
        print(f"  {run.path.name[:8]}  {nats:.4f} nats  {bits:.4f} bits  data.tokens={config['data.tokens']}")


def _likelihood(row: Mapping[str, Any]) -> str:
    nats = statistics.with_error(f"{row['nats']:.4f}", row["stderr"])
    return f"{nats} nats, {row['bits']:.4f} bits per character"


def _versus(group: statistics.Group, first: statistics.Group) -> str:
    """The difference, and what it covers: the settings with any seed, or only these trained weights on this text."""
    over_seeds = statistics.seed_difference(group, first)
    if over_seeds is not None:
        p = over_seeds.p_value
        sure = "" if p is None else f" (p {'=' if p >= 0.001 else '<'} {max(p, 0.001):.3f} over seeds)"
        return f"{statistics.with_error(f'{over_seeds.mean:+.4f}', over_seeds.stderr)}: {over_seeds.verdict}{sure}"
    over_windows = statistics.paired_difference(group.window_losses, first.window_losses)
    mean, margin = over_windows.mean, over_windows.margin
    text = f"{mean:+.4f}: no verdict on the settings, which needs two seeds per group"
    if margin is not None:
        interval = f"{mean - margin:+.4f} to {mean + margin:+.4f}"
        text += f" (95% interval for these trained weights on this text alone: {interval})"
    return text


def _row(row: Measure) -> str:
    return "     -       -" if row["loss"] is None else f"{row['loss']:6.4f}  {row['accuracy']:6.1%}"


if __name__ == "__main__":
    run_main(main)
