"""Which characters a run believes to matter, against those that do, over the course of its training."""

from collections.abc import Sequence
from typing import Any

from configs.devices import best_device
from configs.keys import ConfigError
from data.references.losses import without_counting
from runs.files import write_json
from runs.run_folder import RunFolder
from runs.statistics import with_error
from trained.kept import checkpoints_of, trained_tokens
from trained.load import load
from writing.credit import DISTANCES, NEGLIGIBLE, credit, targets_of


def print_credit(runs: Sequence[RunFolder]) -> None:
    """Print the credit assignment of runs on the play, at each checkpoint that they kept and at the
    end, and write it into credit.json in their folders. Raises ConfigError for a run on another
    text."""
    targets = None
    for run in runs:
        trained = load(run, best_device())
        data = trained.data()
        if data.loaded.automaton is None or without_counting(
            trained.vocabulary, data.loaded
        ):
            raise ConfigError(
                f"{run.name}: --credit needs a run on the characters of the play: data.corpus=play"
            )
        if targets is None:
            print("computing the exact influences (minutes)", flush=True)
            targets = targets_of(data.validation_set, trained.vocabulary)
        rows: list[dict[str, Any]] = []
        print(f"\n{run.name}\n  characters      overlap           wasted")
        for each in checkpoints_of(run):
            model = load(each, best_device()).model
            row = {"chars": trained_tokens(each), **credit(model, targets)}
            rows.append(row)
            overlap = with_error(f"{row['overlap']:.3f}", row["overlap_stderr"])
            wasted = with_error(f"{row['wasted']:.3f}", row["wasted_stderr"])
            print(f"  {row['chars']:12,}   {overlap}   {wasted}", flush=True)
        write_json(run.results / "credit.json", rows, indent=1)
        print_distances(rows[-1]["by_distance"])
    print(
        "overlap: the share of the influence that model and posterior place alike; wasted: the share"
        f" on characters that change the posterior by less than {NEGLIGIBLE} nats"
    )


def print_distances(by_distance: dict[int, dict[str, float]]) -> None:
    """Print the shares of the influence by the distance from the masked character."""
    print("  distance          exact   model  wasted")
    begin = 1
    for end in DISTANCES:
        row = by_distance[end]
        name = str(end) if begin == end else f"{begin} to {end}"
        values = "  ".join(f"{row[key]:6.3f}" for key in ("exact", "model", "wasted"))
        print(f"    {name:12}  {values}")
        begin = end + 1
