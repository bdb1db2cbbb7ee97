"""A scaling law, fitted to a ladder of small runs on the play, and its predictions for ten times their compute.

python -m benchmarks.scaling

The runs train the preset `quick` in other sizes on 20 million characters of fresh play, so that hardly any text is
repeated, and their budgets are in characters. The law is fitted twice: with the known floor of the play, and with an
unknown one, as for any other text. Finished runs are kept in logs/benchmarks/scaling: delete them to train again.
"""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.command import commit, run_benchmark, save_results
from benchmarks.trials import RUNS
from configs.command_line import PRESETS, read_config, resolve
from data.corpus import Corpus, load_corpus
from data.play.grammar import PLAY, play
from data.reference_losses import mean_loss, window_losses
from planning.ladder import shape_keys, train
from planning.law import Interval, Law, Run, fit
from runs.figures import label_ends, save_figure
from runs.files import write_json

LENGTH, SEED = 20_000_000, 2  # of the training text; the built-in play has seed 1
# Sizes, and millions of characters of runs whose compute falls from 5e10 weights times characters.
LADDER = {(32, 1): (4, 1.6, 0.64, 0.26, 0.1), (48, 1): (1.8, 0.7, 0.28, 0.1), (64, 1): (1, 0.4, 0.16)}
LADDER |= {(128, 1): (0.26, 0.1), (128, 2): (0.14,)}
UNSEEN = {(64, 1): (10,), (128, 1): (2.6,), (128, 2): (1.4,)}  # ten times the compute


def main(options: Namespace, path: Path) -> None:
    built_in = load_corpus(PLAY)
    corpus, floor = replace(built_in, training=play(LENGTH, SEED)), mean_loss(window_losses(built_in)["floor"])
    ladder, unseen = (trials(corpus, sizes) for sizes in (LADDER, UNSEEN))
    runs, tests = map(runs_of, (ladder, unseen))
    laws = {"with the known floor": fit(runs, floor=floor), "with an unknown floor": fit(runs)}
    table = [
        {"": f"{run.n_weights:,} weights, {run.n_chars / 1e6:.1f} M characters", "measured": f"{run.loss:.4f}"}
        | {name: law.predict(*run[:2]).words(4) for name, law in laws.items()}
        for run in tests
    ]
    for i, name in ((1, "a"), (3, "s"), (5, "b"), (6, "c")):
        table.append({"": name} | {key: Interval.of(law.draws[i]).words(2) for key, law in laws.items()})
    floors = Interval.of(laws["with an unknown floor"].floors).words(4)
    table.append({"": "floor", "measured": f"{floor:.4f}", "with an unknown floor": floors})
    save_results(path, table, trials=ladder + unseen)
    save_figure(path.with_suffix(".png"), figure(laws["with the known floor"], floor, runs, tests))


def trials(
    corpus: Corpus, sizes: Mapping[tuple[int, int], Sequence[float]], name: str = "scaling", seed: int = 0
) -> list[dict[str, Any]]:
    """The finished runs of `sizes` with their millions of characters, trained now or earlier; `name` is their folder.

    The seed of a run is `seed` + d_model + n_layers + thousands of characters.
    """
    found, values = [], resolve(read_config(PRESETS / "quick.yaml"), {"data.corpus": corpus.name})
    for (d_model, n_layers), millions in ((size, each) for size in sizes for each in sizes[size]):
        kept = RUNS / name / f"{n_layers}-{d_model}-{millions:g}.json"
        if not kept.exists():
            n = round(millions * 1e6 / values["training.chars_per_step"]) * values["training.chars_per_step"]
            own = {"seed": seed + d_model + n_layers + round(1_000 * millions), "training.evaluations": 1}
            run, _ = train(values, corpus, keys := shape_keys(d_model, n_layers) | own, n)
            write_json(kept, run._asdict() | {"keys": keys, "commit": commit()})
            print(f"{name}: {n_layers} x {d_model}, {millions:g} M characters: {run.loss:.4f}", flush=True)
        found.append(json.loads(kept.read_text()))
    return found


def runs_of(trials: Sequence[Mapping[str, Any]]) -> list[Run]:
    return [Run(each["n_weights"], each["n_chars"], each["loss"]) for each in trials]


def figure(law: Law, floor: float, runs: list[Run], tests: list[Run]) -> Figure:
    """The excess by characters: a line of the law per size, the runs of the ladder, and the unseen ones."""
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    axes, chars = drawn.subplots(), np.geomspace(8e4, 1.5e7, 40)
    for i, size in enumerate(sorted({run.n_weights for run in runs})):
        low, middle, high = (np.array([law.predict(size, n) for n in chars]) - floor).T
        axes.fill_between(chars, low, high, color=f"C{i}", alpha=0.15, linewidth=0)
        axes.plot(chars, middle, color=f"C{i}", label=f"{size:,} weights")
        for run in (*runs, *tests):
            if run.n_weights == size:
                axes.plot(run.n_chars, run.loss - floor, "*" if run in tests else ".", color=f"C{i}", markersize=11)
    axes.set(xscale="log", yscale="log", xlabel="characters", ylabel="excess (nats above the floor)")
    axes.set_title("lines and bands (80%): fitted to the dots; stars: ten times the compute", fontsize="medium")
    label_ends(axes, axes.lines)
    return drawn


if __name__ == "__main__":
    run_benchmark(main)
