"""A scaling law, fitted to a ladder of small runs on the play, and its predictions for ten times their compute.

python -m benchmarks.scaling

The runs train the preset `quick` in other sizes on 20 million characters of the play that no other run reads, so that
hardly any text is repeated, and their budgets are in characters. The law is fitted twice: with the known floor of the
play, and with an unknown one, as for any other text. Finished runs are kept in logs/benchmarks until the code changes.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.command import Table, commit, run_benchmark, save_results
from benchmarks.trials import RUNS
from configs.command_line import PRESETS, read_config, resolve
from data.corpus import Corpus, load_corpus
from data.play.grammar import PLAY, play
from data.reference_losses import mean_loss, window_losses
from planning.ladder import built, n_weights, named, shape_keys, train
from planning.law import Law, Run, fit
from runs.figures import save_figure
from runs.files import write_json

LENGTH, SEED = 20_000_000, 2  # of the training text; the built-in play has seed 1
# Sizes, and millions of characters of runs with compute that falls from 5e10 weights times characters.
LADDER = {(32, 1): (4, 1.6, 0.64, 0.26, 0.1), (64, 1): (1, 0.4, 0.16), (128, 1): (0.26, 0.1), (128, 2): (0.14,)}
LADDER |= {(48, 1): (1.8, 0.7, 0.28, 0.1)}
UNSEEN = {(64, 1): (10,), (128, 1): (2.6,), (128, 2): (1.4,)}  # ten times the compute


def main(options: Namespace, path: Path) -> None:
    """Train the missing runs, fit, print the table, and write JSON and a figure."""
    built_in = load_corpus(PLAY)
    corpus, floor = replace(built_in, training=play(LENGTH, SEED)), mean_loss(window_losses(built_in)["floor"])
    ladder, unseen = ([run_of(corpus, size, n) for size in sizes for n in sizes[size]] for sizes in (LADDER, UNSEEN))
    laws = {"known floor": fit(ladder, floor=floor), "unknown floor": fit(ladder)}
    table = predictions(laws, unseen) + found(laws, floor, ladder)
    runs = {"ladder": ladder, "unseen": unseen}
    save_results(path, table, floor=floor, **{k: [run._asdict() for run in v] for k, v in runs.items()})
    save_figure(path.with_suffix(".png"), figure(laws["known floor"], floor, ladder, unseen))


def run_of(corpus: Corpus, size: tuple[int, int], millions: float) -> Run:
    """A finished run, trained now or earlier. The seed follows from the size and the length."""
    seed, file = round(1_000 * millions) + size[0] + size[1], f"{size[1]}-{size[0]}-{millions:g}.json"
    kept = RUNS / "scaling" / commit() / file
    if not kept.exists():
        values = resolve(read_config(PRESETS / "quick.yaml"), {"data.corpus": PLAY, "seed": seed})
        keys = shape_keys(*size)
        n_chars = round(millions * 1e6 / values["training.chars_per_step"]) * values["training.chars_per_step"]
        run = Run(n_weights(built(values, corpus, keys).network), n_chars, train(values, corpus, keys, n_chars)[-1][1])
        print(f"{named(keys)}, {millions:g} M characters: {run.loss:.4f}", flush=True)
        write_json(kept, run)
    return Run(*json.loads(kept.read_text()))


def predictions(laws: dict[str, Law], unseen: Sequence[Run]) -> Table:
    """Each unseen run, and its predictions by all laws."""
    rows = []
    for run in unseen:
        row = {"": f"{run.n_weights:,} weights, {run.n_chars / 1e6:.1f} M characters", "measured": f"{run.loss:.4f}"}
        for name, law in laws.items():
            predicted = law.predict(*run[:2])
            verdict = "inside" if predicted.low <= run.loss <= predicted.high else "outside"
            row[name] = f"{predicted.loss:.4f} ({predicted.low:.4f} to {predicted.high:.4f}): {verdict}"
        rows.append(row)
    return rows


def found(laws: dict[str, Law], floor: float, ladder: Sequence[Run]) -> Table:
    """The parameters of all laws, and the floor that runs with less compute give."""
    rows = []
    for name in ("exponent of size", "exponent of data"):
        shown = {key: law.parameters()[name] for key, law in laws.items()}
        rows.append({"": name} | {key: f"{p.loss:.2f} ({p.low:.2f} to {p.high:.2f})" for key, p in shown.items()})
    compute = [run.n_weights * run.n_chars for run in ladder]
    for share in (1, 0.4, 0.16):
        runs = [run for run, each in zip(ladder, compute, strict=True) if each <= 1.1 * share * max(compute)]
        p = fit(runs).parameters()["floor"]
        row = {"": f"floor, from compute up to {share * max(compute):.1g}", "measured": f"{floor:.4f}"}
        rows.append(row | {"unknown floor": f"{p.loss:.4f} ({p.low:.4f} to {p.high:.4f})"})
    return rows


def figure(law: Law, floor: float, ladder: Sequence[Run], unseen: Sequence[Run]) -> Figure:
    """The excess by characters: a line of the law per size, the runs of the ladder, and the unseen ones."""
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    axes, chars = drawn.subplots(), np.geomspace(8e4, 1.5e7, 40)
    for i, size in enumerate(sorted({run.n_weights for run in ladder})):
        bands = np.array([law.predict(size, n) for n in chars]) - floor
        axes.fill_between(chars, bands[:, 0], bands[:, 2], color=f"C{i}", alpha=0.15, linewidth=0)
        axes.plot(chars, bands[:, 1], color=f"C{i}", label=f"{size:,} weights")
        for runs, marker in ((ladder, "o"), (unseen, "*")):
            shown = [(run.n_chars, run.loss - floor) for run in runs if run.n_weights == size]
            axes.plot(
                *np.array(shown or [(np.nan, np.nan)]).T, marker, color=f"C{i}", markersize=10 - 4 * (marker == "o")
            )
    axes.set(xscale="log", yscale="log", xlabel="characters", ylabel="excess (nats above the floor)")
    axes.set_title("lines and bands (80%): fitted to the dots; stars: ten times the compute", fontsize="medium")
    axes.legend()
    return drawn


if __name__ == "__main__":
    run_benchmark(main)
