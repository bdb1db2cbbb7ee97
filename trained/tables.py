"""Prints the measures of runs as tables, one run after the other and side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from configs.command_line.command import ignored_in_comparisons
from data.vocabulary import UNK, Vocabulary
from runs import statistics
from runs.statistics import with_error
from trained.load import Trained
from trained.measures import Measure

Results = dict[str, Any]  # the content of evaluation.json


class Measured(NamedTuple):
    """A run and its measures."""

    trained: Trained
    results: Results
    # [n_windows], by the measures in which runs are compared
    window_losses: dict[str, np.ndarray]


def print_tables(results: Results) -> None:
    loss = with_error(f"{results['loss.valid']:.4f}", results["loss.valid_stderr"])
    print(
        f"  protocol             loss {loss} nats, accuracy {results['accuracy.valid']:.1%}"
    )
    unit = "character"
    if "bits_per_character" in results:
        unit = "token"
        nats = results["loss.valid_per_character"]
        bits = results["bits_per_character"]
        print(f"  per character        loss {nats:.4f} nats, {bits:.4f} bits")

    references = [
        f"{name} {value:.3f}" for name, value in results["reference_lines"].items()
    ]
    print(f"  reference losses     {', '.join(references)}")
    if "excess" in results:
        print(f"  excess               {results['excess']:.4f} nats above the floor")
    print_writing(results)
    for name, row in {
        "one at a time": results["one_at_a_time"],
        **results["hard_masks"],
    }.items():
        print(f"  {name:18}   {_row(row)}   ({row['n']:,})")
    counting = results.get("counting")
    print(f"  masked at random     model{'            counting' if counting else ''}")
    for name, row in results["masking_rates"].items():
        beside = f"   {_row(counting[name])}" if counting else ""
        print(f"    {name:18} {_row(row)}{beside}")

    for title, table in (
        (f"masked {unit}", "by_class"),
        ("nearest visible", "by_distance"),
    ):
        print(f"  {title}")
        for name, row in results[table].items():
            print(f"    {name:18} {_row(row)}   ({row['n']:,})")

    if "phenomena" in results:
        print("  excess by phenomenon")
        for name, row in results["phenomena"].items():
            excess = with_error(f"{row['excess']:.4f}", row["stderr"])
            floor = f"nats above a floor of {row['floor']:.3f}"
            print(f"    {name:22} {excess} {floor}   ({row['n']:,})")


def print_writing(results: Results) -> None:
    """Print how well one run writes, as far as it was measured."""
    print(f"  any-order bound      {_likelihood(results['bound'])}")
    for order, row in results.get("orders", {}).items():
        print(f"    {order:18} {_likelihood(row)}   ({row['n']} windows)")
    if "grammar" not in results:
        return
    grammar = results["grammar"]
    rate = f"entropy rate {grammar['entropy_rate']:.4f}"
    print(f"    the grammar itself {_likelihood(grammar['exact'])}; {rate}")
    print(
        "  written texts        impossible   cuts per 1,000 characters   nats per character"
    )
    for name, row in grammar["texts"].items():
        cuts = with_error(f"{row['cuts']:.1f}", row["cuts_stderr"])
        print(
            f"    {name:26} {row['impossible']:4.0%}         {cuts:>12}   {row['nats']:18.3f}"
        )


def print_side_by_side(measured: Sequence[Measured]) -> None:
    """Compare runs on the same text; runs with different tokens without a verdict."""
    texts = {each.trained.run.corpus()["sha256"] for each in measured}
    tokens = {predicted_tokens(each.trained.vocabulary) for each in measured}
    if len(texts) > 1:
        print("\nno comparison: the runs were trained and measured on different texts")
    elif len(tokens) > 1:
        print_per_character(measured)
    elif len(measured) > 1:
        print_comparison(measured)


def print_comparison(measured: Sequence[Measured]) -> None:
    """Print how each group of runs that differ only in their seed compares with the first group."""
    # runs of one checkpoint have equal copies of its tokenizer
    tokens = measured[0].trained.values["data.tokens"]
    configs = [
        each.trained.values
        | {
            "data.tokens": tokens,
            "device": each.trained.run.config().get("device"),
            "weights": each.trained.run.weights_path.stem,
        }
        for each in measured
    ]
    for name in measured[0].window_losses:
        losses = [each.window_losses[name] for each in measured]
        groups = statistics.group_by_settings(configs, losses, ignored_in_comparisons())
        print(f"\nside by side ({name}, nats)")
        if name == "loss.valid":
            for key, values in statistics.differing_keys(groups).items():
                columns = "   ".join(f"{value!s:>18}" for value in values)
                print(f"  {key:24} {columns}")
            n_left_out = len(measured) - sum(len(group.losses) for group in groups)
            if n_left_out:
                print(
                    f"  left out: {n_left_out} of {len(measured)} runs, with the settings and seed"
                    " of an earlier one"
                )

        for number, group in enumerate(groups, start=1):
            n = len(group.losses)
            stderr = statistics.standard_error(group.losses)
            loss = with_error(f"{group.losses.mean():.4f}", stderr)
            against = (
                f"; against group 1 {_versus(group, groups[0])}" if number > 1 else ""
            )
            print(f"  group {number}: {loss} ({n} seed{'s' * (n > 1)}){against}")


def predicted_tokens(vocabulary: Vocabulary) -> str:
    """Equal for two runs on the same text if the validation protocol masks the same parts of it."""
    description = vocabulary.description()
    del description["special_tokens"]
    if UNK not in vocabulary.special_tokens:
        description.pop("characters", None)
    return repr(description)


def print_per_character(measured: Sequence[Measured]) -> None:
    """Print the losses of runs with different tokens; their windows and masks differ, so there is
    no verdict."""
    print(
        "\nside by side, per character (the runs have different tokens, windows and masks: no"
        " verdict)"
    )
    for trained, results, _ in measured:
        nats = results.get("loss.valid_per_character") or results["loss.valid"]
        losses = f"{nats:.4f} nats  {nats / math.log(2):.4f} bits"
        tokens = trained.values["data.tokens"]
        print(f"  {trained.run.path.name[:8]}  {losses}  data.tokens={tokens}")


def _likelihood(row: Mapping[str, Any]) -> str:
    nats = with_error(f"{row['nats']:.4f}", row["stderr"])
    return f"{nats} nats, {row['bits']:.4f} bits per character"


def _versus(group: statistics.Group, first: statistics.Group) -> str:
    """The difference, and what it covers: the settings with any seed, or only these trained weights
    on this text."""
    over_seeds = statistics.seed_difference(group, first)
    if over_seeds is not None:
        difference = with_error(f"{over_seeds.mean:+.4f}", over_seeds.stderr)
        text = f"{difference}: {over_seeds.verdict}"
        p = over_seeds.p_value
        if p is None:
            return text
        return f"{text} (p {'=' if p >= 0.001 else '<'} {max(p, 0.001):.3f} over seeds)"

    over_windows = statistics.paired_difference(
        group.window_losses, first.window_losses
    )
    mean = over_windows.mean
    margin = over_windows.margin
    text = f"{mean:+.4f}: no verdict on the settings, which needs two seeds per group"
    if margin is None:
        return text
    interval = f"{mean - margin:+.4f} to {mean + margin:+.4f}"

    return f"{text} (95% interval for these trained weights on this text alone: {interval})"


def _row(row: Measure) -> str:
    if row["loss"] is None:
        return "     -       -"
    return f"{row['loss']:6.4f}  {row['accuracy']:6.1%}"
