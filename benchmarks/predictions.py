"""Ten predictions that the law has not seen: ladders on three texts, and runs with about ten times their compute.

python -m benchmarks.predictions --text FOLDER

The texts are 20 million characters of the play, tiny Shakespeare, and a natural text of 20 million or more. On each,
the law is fitted to the ladder of benchmarks.scaling with other seeds. Finished runs are kept in
logs/benchmarks/predictions: delete them to train again, and before you name another text.
"""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.command import run_benchmark, save_results
from benchmarks.scaling import LADDER, LENGTH, UNSEEN, runs_of, trials
from configs.keys import ConfigError
from data.corpus import TINY_SHAKESPEARE, Corpus, load_corpus
from data.play.grammar import PLAY, play
from data.reference_losses import mean_loss, window_losses
from planning.law import fit

SEED, TEXT_SEED = 10_000, 3  # of the runs, and of the play's training text
AT_LEAST = 20_000_000  # characters of the natural text
MORE = {(48, 1): (18,)}  # on the natural text, besides those of UNSEEN


def main(options: Namespace, path: Path) -> None:
    natural, built_in = load_corpus(options.text), load_corpus(PLAY)
    if n_chars(natural) < AT_LEAST:
        raise ConfigError(f"{options.text} has {n_chars(natural):,} characters for training: {AT_LEAST:,} are needed")
    corpora = {
        "the play": replace(built_in, training=play(LENGTH, TEXT_SEED)),
        "tiny Shakespeare": load_corpus(TINY_SHAKESPEARE),
        "natural text": natural,
    }
    table, rows = list[dict[str, str]](), list[dict[str, Any]]()
    for name, corpus in corpora.items():
        folder, unseen = f"predictions/{name}", UNSEEN | (MORE if corpus is natural else {})
        ladder, tests = (trials(corpus, sizes, folder, SEED) for sizes in (LADDER, unseen))
        floor = mean_loss(window_losses(built_in)["floor"]) if name == "the play" else None
        law = fit(runs_of(ladder), n_text=n_chars(corpus), floor=floor)
        for run in runs_of(tests):
            found = law.predict(*run[:2])
            row = {"": f"{name}: {run.n_weights:,} weights, {run.n_chars / 1e6:.1f} M characters"}
            row |= {"measured": f"{run.loss:.4f}", "predicted (80%)": found.words(4)}
            row |= {"difference": f"{found.loss - run.loss:+.4f}"}
            row |= {"inside": "yes" if found.low <= run.loss <= found.high else "no"}
            if floor is not None:
                row |= {"of the excess": f"{(found.loss - run.loss) / (run.loss - floor):+.0%}"}
            table.append(row)
        rows += [each | {"text": name} for each in (*ladder, *tests)]
    save_results(path, table, trials=rows)


def n_chars(corpus: Corpus) -> int:
    """The characters of the training text."""
    return sum(corpus.stored.n_training) if corpus.stored else len(corpus.training)


if __name__ == "__main__":
    text = {"required": True, "metavar": "FOLDER", "help": "a file or folder of natural text"}
    run_benchmark(main, {"text": text}, unnamed=("text",))
