"""Measure trained runs, one or several side by side.

python evaluate.py RUN [RUN ...]        RUN: a folder, a uuid or its beginning, or `last`
"""

import json
from pathlib import Path
from typing import Any

from configs.command_line import read_config, resolve
from configs.experiment import Configs, best_device, configs_of
from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from data.corpus import CorpusError
from data.protocol import N_MASKED
from runs.files import write_atomically
from runs.find import find_run
from runs.pictures import save_measures
from runs.run_folder import RunFolder, RunFolderError
from runs.statistics import compare, differing_keys, group_by_settings
from training import tracking
from training.checkpoint import CheckpointError, load_weights, put_weights
from training.evaluation import Evaluation, evaluate
from training.measures import breakdown, counting_sweep, hard_masks, one_at_a_time, sweep

ROOT = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Measure the runs that the command line names; returns the exit code."""
    parser = OneLineParser(description="Measure trained runs, one or several side by side.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a folder, a uuid or its beginning, or last")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="where the runs are")
    tracking.be_quiet()
    try:
        options = parser.parse_args(arguments)
        found = [find_run(name, options.logs) for name in options.runs]
        runs = list({run.path: run for run in found}.values())  # one named twice is measured once
        evaluations = []
        for run in runs:
            configs = trained(run)
            print(f"\n{run.path.parent.name}/{run.path.name}  ({configs.data.loaded.name})", flush=True)
            evaluations.append(measure(run, configs))
    except (ConfigError, CorpusError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    if len(runs) > 1:
        print_comparison(runs, evaluations)
    return 0


def trained(run: RunFolder) -> Configs:
    """A run's config tree with its best weights. Raises ConfigError, CorpusError or RunFolderError."""
    configs = configs_of(resolve(read_config(run.config_path), {"device": best_device()}))
    weights = run.checkpoints / "best.safetensors"
    if not weights.exists():
        raise RunFolderError(f"{run.path} has no trained weights yet")
    if configs.data.loaded.sha256 != run.corpus()["sha256"]:
        raise RunFolderError(f"{run.path}: its corpus {configs.data.corpus} has changed since it was trained on")
    put_weights(configs.network, load_weights(weights), weights)
    return configs


def measure(run: RunFolder, configs: Configs) -> Evaluation:
    """Measure one run: print its tables, write evaluation.json and evaluation.png into its folder."""
    print("  measuring: a minute, more or less", flush=True)
    model, validation, vocabulary = configs.network, configs.data.validation, configs.data.vocabulary
    protocol = evaluate(model, validation, mask_token=vocabulary.mask_token, seq_len=validation.windows.shape[1])
    rates = sweep(model, validation, vocabulary.mask_token)
    counting = counting_sweep(configs.data.training_ids, validation, vocabulary.n_chars)
    single = one_at_a_time(model, validation, vocabulary.mask_token)
    hard = hard_masks(model, validation, vocabulary)
    by_class, by_distance = breakdown(model, validation, vocabulary)
    references = run.reference_lines()
    results: dict[str, Any] = {
        "loss.valid": protocol.loss,
        "loss.valid_stderr": protocol.loss_stderr,
        "accuracy.valid": protocol.accuracy,
        "reference_lines": references,
        "masking_rates": rates,
        "counting": counting,
        "one_at_a_time": single,
        "hard_masks": hard,
        "by_class": by_class,
        "by_distance": by_distance,
    }
    if "floor" in references:
        results["excess"] = protocol.loss - references["floor"]
    print_tables(results)
    write_atomically(run.path / "evaluation.json", (json.dumps(results, indent=2) + "\n").encode())
    save_measures(run.path / "evaluation.png", results, run.path.name)
    return protocol


def print_tables(results: dict[str, Any]) -> None:
    """The tables of one run."""
    print(
        f"  protocol             loss {results['loss.valid']:.4f} ± {results['loss.valid_stderr']:.4f} nats,"
        f" {results['accuracy.valid']:.1%} right"
    )
    print("  to compare           " + ", ".join(f"{k} {v:.3f}" for k, v in results["reference_lines"].items()))
    if "excess" in results:
        print(f"  excess               {results['excess']:.4f} nats above the floor")
    single = results["one_at_a_time"]
    print(f"  one at a time        {_row(single)}   ({single['characters']:,} characters)")
    for name, row in results["hard_masks"].items():
        print(f"  {name:18}   {_row(row)}")
    print("  masked, at random    model            counting")
    for name, row in results["masking_rates"].items():
        print(f"    {name:18} {_row(row)}   {_row(results['counting'][name])}")
    for title, table in (("hidden character", "by_class"), ("nearest visible", "by_distance")):
        print(f"  {title}")
        for name, row in results[table].items():
            print(f"    {name:18} {_row(row)}   ({row['n']:,})")


def print_comparison(runs: list[RunFolder], evaluations: list[Evaluation]) -> None:
    """Groups of runs that differ in their seed only, against the first group."""
    if len({run.corpus()["sha256"] for run in runs}) > 1:
        print("\nnot compared side by side: the runs were trained, and measured, on different texts")
        return
    configs = [resolve(read_config(run.config_path), {}) for run in runs]  # a key may be younger than a run
    groups = group_by_settings(configs, [evaluation.window_losses / N_MASKED for evaluation in evaluations])
    print("\nside by side (loss.valid, nats)")
    for key, values in differing_keys(groups).items():
        print(f"  {key:24} " + "   ".join(f"{value!s:>18}" for value in values))
    for number, group in enumerate(groups):
        error = f" ± {group.stderr:.4f}" if group.stderr is not None else ""
        line = (
            f"  group {number + 1}: {group.mean:.4f}{error} ({len(group.losses)} seed{'s' * (len(group.losses) > 1)})"
        )
        if number:
            difference = compare(group, groups[0])
            line += f"; against group 1 {difference.mean:+.4f} ± {difference.stderr:.4f} over {difference.source}:"
            line += f" {difference.verdict}"
        print(line)


def _row(row: dict[str, Any]) -> str:
    return "     -       -" if row["loss"] is None else f"{row['loss']:6.4f}  {row['accuracy']:6.1%}"


if __name__ == "__main__":
    run_main(main)
