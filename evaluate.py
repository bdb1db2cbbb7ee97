"""Measure trained runs, one or several side by side.

python evaluate.py RUN [RUN ...] [--writing]          RUN: a folder, a uuid or its first characters,
                                                      or last
python evaluate.py RUN [RUN ...] data.corpus=PATH     their text has moved to PATH
python evaluate.py RUN [RUN ...] --tasks              only the tasks that finetune.py has learned
python evaluate.py RUN [RUN ...] --pairs FILE [FILE ...]
                                                      minimal pairs: BLiMP's sentence_good and
                                                      sentence_bad, or the first two columns of a
                                                      CSV, TSV or JSON lines file
python evaluate.py RUN [RUN ...] --card               only write card.md into the folder of the run: its
                                                      figure and losses, and what may be claimed with
                                                      all its seeds
python evaluate.py RUN [RUN ...] --tasks --over-time  these tasks at each checkpoint that
                                                      checkpoint.keep_at kept
python evaluate.py RUN [RUN ...] --credit             runs on the play: which visible characters a
                                                      model believes to matter, and which do
"""

import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from configs.command_line.program import run_main
from configs.command_line.scripts import run_parser, run_script
from configs.data import DataConfigs
from configs.devices import best_device
from configs.keys import ConfigError
from data.references.losses import counted_ids, without_counting
from runs.curves import save_measures
from runs.files import write_json
from runs.find import find_run
from runs.run_folder import RunFolder
from runs.schema import is_number, read_object
from trained.load import MOVED, Trained, choose_threads, load
from trained.measures import breakdown, counting_sweep, hard_masks, one_at_a_time, sweep
from trained.minimal_pairs import measure_pairs, read_files
from trained.run_card import write_card
from trained.tables import Measured, Results, print_side_by_side, print_tables
from trained.task_results import print_tasks
from training.callbacks.per_character import per_character
from training.evaluation import evaluate
from writing.credit_over_time import print_credit
from writing.measures import (
    bound,
    grammar_measures,
    in_orders,
    likelihood,
    n_characters,
)
from writing.phenomena import excess_by_phenomenon, known_characters


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__, "runs", nargs="+")
    writing = (
        "also measure how well the runs write, which takes a minute or more per run"
    )
    parser.add_argument("--writing", action="store_true", help=writing)
    tasks = "print the scores of the tasks that finetune.py has learned, and measure nothing"
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--tasks", action="store_true", help=tasks)
    influence = (
        "print how well the influence of visible characters agrees with the exact one"
    )
    only.add_argument("--credit", action="store_true", help=influence)
    card = "write card.md, a page about the run for a paper, and measure nothing"
    only.add_argument("--card", action="store_true", help=card)
    over_time = "learn these tasks at each kept checkpoint too, and draw the scores against the tokens"
    parser.add_argument("--over-time", action="store_true", help=over_time)

    pairs = (
        "print on how many pairs the first text has the higher pseudo-log-likelihood"
    )
    only.add_argument("--pairs", nargs="+", type=Path, metavar="FILE", help=pairs)
    within = "score each token without the later ones of its word (PLL-word-l2r)"
    parser.add_argument("--within-words", action="store_true", help=within)

    return run_script(parser, arguments, measure_runs)


def measure_runs(options: Namespace) -> None:
    """Measure the runs one after the other, and compare them."""
    corpora = [
        word.removeprefix(MOVED) for word in options.runs if word.startswith(MOVED)
    ]
    names = [word for word in options.runs if not word.startswith(MOVED)]
    if not names or len(corpora) > 1:
        raise ConfigError(f"name a RUN, and at most one {MOVED}PATH")
    runs = [find_run(name, options.logs) for name in names]
    for option, needed in (("over_time", "tasks"), ("within_words", "pairs")):
        if getattr(options, option) and not getattr(options, needed):
            raise ConfigError(f"--{option.replace('_', '-')} needs --{needed}")
    if options.tasks:
        for run in runs:
            show_tasks(run, options.over_time)
        return
    if options.card:
        for run in runs:
            print(write_card(run))
        return

    if options.credit:
        print_credit(runs)
        return

    n_threads = torch.get_num_threads()
    if options.pairs:
        files = read_files(options.pairs)
        for run in runs:
            trained = load(run)
            choose_threads(trained, n_threads)
            measure_pairs(trained, files, options.within_words)
        return

    measured = []
    for run in {run.results: run for run in runs}.values():
        trained = load(run, best_device(), *corpora)
        choose_threads(trained, n_threads)
        measured.append(measure(trained, options.writing))

    print_side_by_side(measured)


def show_tasks(run: RunFolder, over_time: bool) -> None:
    if over_time:
        from trained.over_time import tasks_over_time  # needs scikit-learn

        tasks_over_time(RunFolder(run.path))
        return
    print(f"\n{run.name}")
    print_tasks(run.results)


def measure(trained: Trained, with_writing: bool) -> Measured:
    """Print the tables of one run, and write evaluation.json and evaluation.png into its folder."""
    run = trained.run
    vocabulary = trained.vocabulary
    data = trained.data()
    validation = data.validation_set
    print(f"\n{run.name}  ({data.loaded.name})", flush=True)
    print("  measuring: protocol", end="", flush=True)
    seq_len = validation.windows.shape[1]
    protocol = evaluate(
        trained.model, validation, mask_token=vocabulary.mask_token, seq_len=seq_len
    )
    print(", bound", end="", flush=True)
    bound_losses = bound(trained, validation)
    results: Results = {
        "loss.valid": protocol.loss,
        "loss.valid_stderr": protocol.loss_stderr,
        "accuracy.valid": protocol.accuracy,
        "reference_lines": run.reference_lines(),
        **breakdown(protocol.outcomes, validation, vocabulary),
        **per_character(protocol, validation, vocabulary.lengths),
        "bound": likelihood(bound_losses, validation.windows, vocabulary),
    }
    for name, compute in measures_of(trained, data, with_writing).items():
        print(f", {name.replace('_', ' ')}", end="", flush=True)
        results[name] = compute()

    why_not = without_counting(vocabulary, data.loaded)
    print(f"\n  {why_not}" if why_not else "", flush=True)
    if "floor" in results["reference_lines"]:
        results["excess"] = protocol.loss - results["reference_lines"]["floor"]
    print_tables(results)
    save(trained, results)
    bounds = bound_losses / n_characters(validation.windows, vocabulary)
    window_losses = {
        "loss.valid": protocol.window_losses / validation.n_masked,
        "any-order bound": bounds.numpy(),
    }

    return Measured(trained, results, window_losses)


def measures_of(
    trained: Trained, data: DataConfigs, with_writing: bool
) -> dict[str, Callable[[], dict[str, Any]]]:
    """The further measures that apply to a run, by their names in evaluation.json."""
    model = trained.model
    vocabulary = trained.vocabulary
    mask_token = vocabulary.mask_token
    loaded = data.loaded
    validation = data.validation_set
    can_count = not without_counting(vocabulary, loaded)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "masking_rates": lambda: sweep(model, validation, mask_token)
    }
    if can_count:
        measures["counting"] = lambda: counting_sweep(
            counted_ids(loaded, vocabulary), validation, vocabulary.n_ordinary
        )

    measures["one_at_a_time"] = lambda: one_at_a_time(model, validation, mask_token)
    measures["hard_masks"] = lambda: hard_masks(model, validation, vocabulary)
    if can_count and loaded.automaton:
        measures["phenomena"] = lambda: excess_by_phenomenon(
            model, known_characters(validation, vocabulary), mask_token
        )

    if with_writing:
        measures["orders"] = lambda: in_orders(trained, validation)
        if can_count and loaded.automaton:
            measures["grammar"] = lambda: grammar_measures(
                loaded.automaton, trained, validation
            )

    return measures


def save(trained: Trained, results: Results) -> None:
    folder = trained.run.results
    path = folder / "evaluation.json"
    earlier = read_object(path, {}) if path.exists() else {}
    # With the same loss, what an earlier --writing measured is kept. Last digits depend on the
    # number of threads.
    loss = earlier.get("loss.valid")
    if not is_number(loss) or not math.isclose(
        loss, results["loss.valid"], rel_tol=1e-6
    ):
        earlier = {}
    write_json(path, earlier | results, indent=2)
    save_measures(folder / "evaluation.png", results, folder.name)


if __name__ == "__main__":
    run_main(main)
