"""A scaling law, fitted to a ladder of small runs, and its predictions for ten times their compute.

python -m benchmarks.scaling                  on the play, with its known floor and with an unknown
one python -m benchmarks.scaling --text FOLDER    ten predictions, on other text of the play, tiny
Shakespeare, and FOLDER

The runs train the preset `quick` in other sizes, and their budgets are in characters. The play has
20 million, so that hardly any text is repeated; FOLDER must have as many. Finished runs are kept in
logs/benchmarks/scaling and logs/benchmarks/predictions: delete them to train again, and before you
name another text.
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
from configs.command_line.command import PRESETS, read_config, resolve
from configs.keys import ConfigError
from data.corpus import TINY_SHAKESPEARE, Corpus, load_corpus
from data.play.grammar import PLAY, play
from data.references.losses import mean_loss, window_losses
from planning.ladder import shape_keys, train
from planning.law import Interval, Law, Run, fit
from runs.figures import label_ends, save_figure
from runs.files import write_json

LENGTH = 20_000_000  # characters of each part of the play, and at least of the natural text
# of the play, the built-in one has 1; and added to those of the runs
SEEDS, OTHER_SEEDS = (2, 0), (3, 10_000)
# Sizes, and millions of characters of runs whose compute falls from 5e10 weights times characters.
LADDER = {
    (32, 1): (4, 1.6, 0.64, 0.26, 0.1),
    (48, 1): (1.8, 0.7, 0.28, 0.1),
    (64, 1): (1, 0.4, 0.16),
}
LADDER |= {(128, 1): (0.26, 0.1), (128, 2): (0.14,)}
UNSEEN = {(64, 1): (10,), (128, 1): (2.6,), (128, 2): (1.4,)}  # ten times the compute
MORE = {(48, 1): (18,)}  # on the natural text, besides those of UNSEEN


def main(options: Namespace, path: Path) -> None:
    built_in = load_corpus(PLAY)
    floor = mean_loss(window_losses(built_in)["floor"])
    if options.text:
        predict_on(options.text, built_in, floor, path.with_name("predictions"))
    else:
        compare_floors(built_in, floor, path)


def compare_floors(built_in: Corpus, floor: float, path: Path) -> None:
    """Predict runs on the play with its known floor, and with an unknown one, as for any other
    text."""
    corpus = replace(built_in, training=play(LENGTH, SEEDS[0]))
    ladder, unseen = (trials(corpus, sizes, "scaling", SEEDS[1]) for sizes in (LADDER, UNSEEN))
    runs, tests = map(runs_of, (ladder, unseen))
    laws = {"with the known floor": fit(runs, floor=floor), "with an unknown floor": fit(runs)}
    table = [
        {"": described(run), "measured": f"{run.loss:.4f}"}
        | {name: law.predict(*run[:2]).words(4) for name, law in laws.items()}
        for run in tests
    ]
    for i, name in ((1, "a"), (3, "s"), (5, "b"), (6, "c")):
        table.append(
            {"": name} | {key: Interval.of(law.draws[i]).words(2) for key, law in laws.items()}
        )
    floors = Interval.of(laws["with an unknown floor"].floors).words(4)
    table.append({"": "floor", "measured": f"{floor:.4f}", "with an unknown floor": floors})
    save_results(path, table, trials=ladder + unseen)
    save_figure(path.with_suffix(".png"), figure(laws["with the known floor"], floor, runs, tests))


def predict_on(text: str, built_in: Corpus, floor: float, path: Path) -> None:
    """Predict runs on three texts, with the known floor of the play."""
    natural = load_corpus(text)
    if n_chars(natural) < LENGTH:
        raise ConfigError(
            f"{text} has {n_chars(natural):,} characters for training: {LENGTH:,} are needed"
        )
    corpora = {"the play": replace(built_in, training=play(LENGTH, OTHER_SEEDS[0]))}
    corpora |= {"tiny Shakespeare": load_corpus(TINY_SHAKESPEARE), "natural text": natural}
    table, rows = list[dict[str, str]](), list[dict[str, Any]]()
    for name, corpus in corpora.items():
        folder, unseen = f"predictions/{name}", UNSEEN | (MORE if corpus is natural else {})
        ladder, tests = (
            trials(corpus, sizes, folder, OTHER_SEEDS[1]) for sizes in (LADDER, unseen)
        )
        law = fit(
            runs_of(ladder), n_text=n_chars(corpus), floor=floor if name == "the play" else None
        )
        for run in runs_of(tests):
            found = law.predict(*run[:2])
            row = {
                "": f"{name}: {described(run)}",
                "measured": f"{run.loss:.4f}",
                "predicted (80%)": found.words(4),
            }
            row |= {"difference": f"{found.loss - run.loss:+.4f}"}
            row |= {"inside": "yes" if found.low <= run.loss <= found.high else "no"}
            if law.known_floor is not None:
                row |= {"of the excess": f"{(found.loss - run.loss) / (run.loss - floor):+.0%}"}
            table.append(row)
        rows += [each | {"text": name} for each in (*ladder, *tests)]
    save_results(path, table, trials=rows)


def n_chars(corpus: Corpus) -> int:
    """The characters of the training text."""
    return sum(corpus.stored.n_training) if corpus.stored else len(corpus.training)


def described(run: Run) -> str:
    return f"{run.n_weights:,} weights, {run.n_chars / 1e6:.1f} M characters"


def trials(
    corpus: Corpus, sizes: Mapping[tuple[int, int], Sequence[float]], name: str, seed: int
) -> list[dict[str, Any]]:
    """The finished runs of `sizes` with their millions of characters, trained now or earlier;
    `name` is their folder.

    The seed of a run is `seed` + d_model + n_layers + thousands of characters.
    """
    found, values = [], resolve(read_config(PRESETS / "quick.yaml"), {"data.corpus": corpus.name})
    for (d_model, n_layers), millions in ((size, each) for size in sizes for each in sizes[size]):
        kept = RUNS / name / f"{n_layers}-{d_model}-{millions:g}.json"
        if not kept.exists():
            n = (
                round(millions * 1e6 / values["training.chars_per_step"])
                * values["training.chars_per_step"]
            )
            own = {
                "seed": seed + d_model + n_layers + round(1_000 * millions),
                "training.evaluations": 1,
            }
            run, _ = train(values, corpus, keys := shape_keys(d_model, n_layers) | own, n)
            write_json(kept, run._asdict() | {"keys": keys, "commit": commit()})
            print(
                f"{name}: {n_layers} x {d_model}, {millions:g} M characters: {run.loss:.4f}",
                flush=True,
            )
        found.append(json.loads(kept.read_text()))
    return found


def runs_of(trials: Sequence[Mapping[str, Any]]) -> list[Run]:
    return [Run(each["n_weights"], each["n_chars"], each["loss"]) for each in trials]


def figure(law: Law, floor: float, runs: list[Run], tests: list[Run]) -> Figure:
    """The excess by characters: a line of the law per size, the runs of the ladder, and the unseen
    ones."""
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    axes, chars = drawn.subplots(), np.geomspace(8e4, 1.5e7, 40)
    for i, size in enumerate(sorted({run.n_weights for run in runs})):
        low, middle, high = (np.array([law.predict(size, n) for n in chars]) - floor).T
        axes.fill_between(chars, low, high, color=f"C{i}", alpha=0.15, linewidth=0)
        axes.plot(chars, middle, color=f"C{i}", label=f"{size:,} weights")
        for run in (*runs, *tests):
            if run.n_weights == size:
                axes.plot(
                    run.n_chars,
                    run.loss - floor,
                    "*" if run in tests else ".",
                    color=f"C{i}",
                    markersize=11,
                )
    axes.set(
        xscale="log", yscale="log", xlabel="characters", ylabel="excess (nats above the floor)"
    )
    axes.set_title(
        "lines and bands (80%): fitted to the dots; stars: ten times the compute", fontsize="medium"
    )
    label_ends(axes, axes.lines)
    return drawn


if __name__ == "__main__":
    text = {"metavar": "FOLDER", "help": "a file or folder of natural text"}
    run_benchmark(main, {"text": text}, unnamed={"text"})
