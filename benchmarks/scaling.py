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
from data.references.losses import mean_losses, window_losses
from planning.ladder import shape_keys, train
from planning.law import Interval, Law, Run, fit
from runs.figures import label_ends, save_figure
from runs.files import write_json

# characters of each part of the play, and at least of the natural text
LENGTH = 20_000_000
# of the play, the built-in one has 1; and added to those of the runs
SEEDS = (2, 0)
OTHER_SEEDS = (3, 10_000)
# Sizes, and millions of characters of runs whose compute falls from 5e10 weights times characters.
LADDER = {
    (32, 1): (4, 1.6, 0.64, 0.26, 0.1),
    (48, 1): (1.8, 0.7, 0.28, 0.1),
    (64, 1): (1, 0.4, 0.16),
    (128, 1): (0.26, 0.1),
    (128, 2): (0.14,),
}
UNSEEN = {(64, 1): (10,), (128, 1): (2.6,), (128, 2): (1.4,)}  # ten times the compute
MORE = {(48, 1): (18,)}  # on the natural text, besides those of UNSEEN


def main(options: Namespace, path: Path) -> None:
    built_in = load_corpus(PLAY)
    floor = mean_losses(window_losses(built_in))["floor"]
    if options.text:
        predict_on(options.text, built_in, floor, path.with_name("predictions"))
    else:
        compare_floors(built_in, floor, path)


def compare_floors(built_in: Corpus, floor: float, path: Path) -> None:
    """Predict runs on the play with its known floor, and with an unknown one, as for any other
    text."""
    corpus = replace(built_in, training=play(LENGTH, SEEDS[0]))
    ladder = trials(corpus, LADDER, "scaling", SEEDS[1])
    unseen = trials(corpus, UNSEEN, "scaling", SEEDS[1])
    runs = runs_of(ladder)
    tests = runs_of(unseen)
    known = fit(runs, floor=floor)
    unknown = fit(runs)
    laws = {"with the known floor": known, "with an unknown floor": unknown}

    table = []

    for run in tests:
        row = {"": described(run), "measured": f"{run.loss:.4f}"}
        for name, law in laws.items():
            row[name] = law.predict(run.n_weights, run.n_chars).words(4)

        table.append(row)

    for i, exponent in ((1, "a"), (3, "s"), (5, "b"), (6, "c")):
        row = {"": exponent}
        for name, law in laws.items():
            row[name] = Interval.of(law.draws[i]).words(2)

        table.append(row)

    floors = Interval.of(unknown.floors).words(4)
    table.append(
        {"": "floor", "measured": f"{floor:.4f}", "with an unknown floor": floors}
    )
    save_results(path, table, trials=ladder + unseen)
    save_figure(path.with_suffix(".png"), figure(known, floor, runs, tests))


def predict_on(text: str, built_in: Corpus, floor: float, path: Path) -> None:
    """Predict runs on three texts, with the known floor of the play."""
    natural = load_corpus(text)
    if n_chars(natural) < LENGTH:
        raise ConfigError(
            f"{text} has {n_chars(natural):,} characters for training: {LENGTH:,} are needed"
        )

    corpora = {
        "the play": replace(built_in, training=play(LENGTH, OTHER_SEEDS[0])),
        "tiny Shakespeare": load_corpus(TINY_SHAKESPEARE),
        "natural text": natural,
    }

    table: list[dict[str, str]] = []
    rows: list[dict[str, Any]] = []

    for name, corpus in corpora.items():
        folder = f"predictions/{name}"
        unseen = UNSEEN | MORE if corpus is natural else UNSEEN
        ladder = trials(corpus, LADDER, folder, OTHER_SEEDS[1])
        tests = trials(corpus, unseen, folder, OTHER_SEEDS[1])
        known_floor = floor if name == "the play" else None
        law = fit(runs_of(ladder), n_text=n_chars(corpus), floor=known_floor)
        for run in runs_of(tests):
            table.append({"": f"{name}: {described(run)}", **compared(law, run)})

        rows += [each | {"text": name} for each in ladder + tests]

    save_results(path, table, trials=rows)


def compared(law: Law, run: Run) -> dict[str, str]:
    """The loss of a run beside its prediction."""
    predicted = law.predict(run.n_weights, run.n_chars)
    difference = predicted.loss - run.loss
    row = {
        "measured": f"{run.loss:.4f}",
        "predicted (80%)": predicted.words(4),
        "difference": f"{difference:+.4f}",
        "inside": "yes" if predicted.low <= run.loss <= predicted.high else "no",
    }

    if law.known_floor is not None:
        row["of the excess"] = f"{difference / (run.loss - law.known_floor):+.0%}"

    return row


def n_chars(corpus: Corpus) -> int:
    """The characters of the training text."""
    return corpus.stored.n_training if corpus.stored else len(corpus.training)


def described(run: Run) -> str:
    return f"{run.n_weights:,} weights, {run.n_chars / 1e6:.1f} M characters"


def trials(
    corpus: Corpus,
    sizes: Mapping[tuple[int, int], Sequence[float]],
    name: str,
    seed: int,
) -> list[dict[str, Any]]:
    """The finished runs of `sizes` with their millions of characters, trained now or earlier;
    `name` is their folder.

    The seed of a run is `seed` + d_model + n_layers + thousands of characters.
    """
    values = resolve(read_config(PRESETS / "quick.yaml"), {"data.corpus": corpus.name})
    chars_per_step = values["training.chars_per_step"]
    finished = []

    for (d_model, n_layers), budgets in sizes.items():
        for millions in budgets:
            file = RUNS / name / f"{n_layers}-{d_model}-{millions:g}.json"
            if not file.exists():
                n_steps = round(millions * 1e6 / chars_per_step)
                keys = shape_keys(d_model, n_layers) | {"training.evaluations": 1}
                keys["seed"] = seed + d_model + n_layers + round(1_000 * millions)
                run, _ = train(values, corpus, keys, n_steps * chars_per_step)
                write_json(file, run._asdict() | {"keys": keys, "commit": commit()})
                print(f"{name}: {described(run)}: {run.loss:.4f}", flush=True)

            finished.append(json.loads(file.read_text()))

    return finished


def runs_of(trials: list[dict[str, Any]]) -> list[Run]:
    return [Run(each["n_weights"], each["n_chars"], each["loss"]) for each in trials]


def figure(law: Law, floor: float, runs: list[Run], tests: list[Run]) -> Figure:
    """The excess by characters: a line of the law per size, the runs of the ladder, and the unseen
    ones."""
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    axes = drawn.subplots()
    chars = np.geomspace(8e4, 1.5e7, 40)

    for i, size in enumerate(sorted({run.n_weights for run in runs})):
        color = f"C{i}"
        predicted = np.transpose([law.predict(size, n) for n in chars])
        low, middle, high = predicted - floor

        axes.fill_between(chars, low, high, color=color, alpha=0.15, linewidth=0)
        axes.plot(chars, middle, color=color, label=f"{size:,} weights")
        for run in (*runs, *tests):
            if run.n_weights == size:
                marker = "*" if run in tests else "."
                excess = run.loss - floor
                axes.plot(run.n_chars, excess, marker, color=color, markersize=11)

    axes.set(
        xscale="log",
        yscale="log",
        xlabel="characters",
        ylabel="excess (nats above the floor)",
    )
    axes.set_title(
        "lines and bands (80%): fitted to the dots; stars: ten times the compute",
        fontsize="medium",
    )
    label_ends(axes, axes.lines)
    return drawn


if __name__ == "__main__":
    text = {"metavar": "FOLDER", "help": "a file or folder of natural text"}
    run_benchmark(main, unnamed={"text"}, text=text)
