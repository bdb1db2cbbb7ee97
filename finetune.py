"""Fine-tune a trained run to classify texts, and compare it with models that were not pretrained.

python finetune.py RUN --task speaker       who says a speech? RUN: a folder, a uuid or its first characters, or `last`
python finetune.py RUN --task FILE.csv      columns text, label and, if wanted, split (train or test)

Compares four classifiers: the run's model; the same model from scratch; a logistic regression on character n-grams; and
the most frequent label. The models are trained once per seed. Each has the learning rate that is best on a fifth of the
training texts. With --freeze, the encoder is not trained: a logistic regression classifies its vectors.
"""

import copy
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from data.corpus import CorpusError
from runs.files import ROOT, write_json
from runs.run_folder import RunFolderError
from runs.statistics import paired_difference, standard_error, with_error
from trained.classification import encoded, fine_tune, predictions, vectors
from trained.load import Trained, load_trained, untrained
from trained.tasks import Task, from_csv, inner, speakers
from training.checkpoint import CheckpointError

SPEAKER = "speaker"
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
PRETRAINED, FROM_SCRATCH = "pretrained", "from scratch"
Scores = Mapping[str, float]
Model = Callable[[int], Any]  # the model for a seed
Classify = Callable[[Task, int], list[str]]  # the labels of the test texts, for a seed


def main(arguments: list[str]) -> int:
    """Fine-tune and compare; returns the exit code."""
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    parser.add_argument("--task", required=True, help="speaker, or a CSV file")
    parser.add_argument("--freeze", action="store_true", help="train only a classifier on the encoder's vectors")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_args(arguments)
        if options.seeds < 1:
            raise ConfigError(f"--seeds {options.seeds} is below 1")
        import trained.baselines  # noqa: F401

        run = load_trained(options.run, options.logs)
        task = speakers(run.data().loaded.validation) if options.task == SPEAKER else from_csv(Path(options.task))
        results = compare(run, task, options.freeze, options.seeds)
    except ModuleNotFoundError as error:
        return fail(f"{error.name} is not installed: pip install -r requirements-finetune.txt")
    except (ConfigError, CorpusError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    path = run.run.path / f"finetune-{Path(options.task).stem}{'-frozen' * options.freeze}.json"
    write_json(path, results, indent=1)
    print(f"written to {path}")
    return 0


def compare(trained: Trained, task: Task, freeze: bool, seeds: int) -> dict[str, Any]:
    """Train all models and print their accuracy and macro F1; returns the results."""
    from trained.baselines import by_ngrams, most_frequent, scores

    sizes = f"{len(task.training)} texts for training, {len(task.test)} for testing, {len(task.labels)} labels"
    print(f"{task.name}: {sizes}; this takes minutes", flush=True)
    classify = probed if freeze else fine_tuned
    rows: dict[str, list[Scores]] = {}
    for name, model in models(trained).items():
        guess = classify(trained, model, task)
        rows[name] = [scores(task, guess(task, seed)) for seed in range(seeds)]
        show(name, rows[name])
    for name, baseline in {"character n-grams": by_ngrams, "most frequent label": most_frequent}.items():
        rows[name] = [scores(task, baseline(task))]
        show(name, rows[name])
    gains = {score: gain(score, rows[PRETRAINED], rows[FROM_SCRATCH]) for score in rows[PRETRAINED][0]}
    return {"task": task.name, "frozen": freeze, "scores": rows, "gain of pretraining": gains}


def models(trained: Trained) -> dict[str, Model]:
    """The models to compare. Batches have the same order for the same seed."""
    return {
        PRETRAINED: lambda seed: copy.deepcopy(trained.model),
        FROM_SCRATCH: lambda seed: untrained({**trained.values, "seed": seed}, trained.vocabulary),
    }


def fine_tuned(trained: Trained, model: Model, task: Task) -> Classify:
    """Fine-tuning, with the learning rate that is best for this model on a fifth of the training texts."""
    from trained.baselines import scores

    def classify(task: Task, seed: int, learning_rate: float) -> list[str]:
        labels = [task.labels.index(label) for _, label in task.training]
        classifier = fine_tune(
            model(seed).encoder,
            encoded([text for text, _ in task.training], trained),
            labels,
            d_model=trained.values["model.d_model"],
            learning_rate=learning_rate,
            seed=seed,
        )
        return [task.labels[i] for i in predictions(classifier, encoded([text for text, _ in task.test], trained))]

    part = inner(task)
    best = max(LEARNING_RATES, key=lambda rate: scores(part, classify(part, 0, rate))["accuracy"])
    print(f"  learning rate {best:g}", flush=True)
    return lambda task, seed: classify(task, seed, best)


def probed(trained: Trained, model: Model, task: Task) -> Classify:
    """A logistic regression on the vectors of the encoder, which is not trained."""
    from trained.baselines import linear_probe

    def classify(task: Task, seed: int) -> list[str]:
        encoder = model(seed).encoder
        parts = [encoded([text for text, _ in part], trained) for part in (task.training, task.test)]
        return linear_probe(task, *(vectors(encoder, part).numpy() for part in parts))

    return classify


def show(name: str, rows: Sequence[Scores]) -> None:
    """Print a model's mean scores over seeds."""
    cells = []
    for score in rows[0]:
        values = [row[score] for row in rows]
        cells.append(f"{score} {with_error(f'{fmean(values):.3f}', standard_error(values))}")
    print(f"  {name:20} {'   '.join(cells)}", flush=True)


def gain(score: str, pretrained: Sequence[Scores], from_scratch: Sequence[Scores]) -> dict[str, Any]:
    """Print and return the gain of pretraining, paired by seed."""
    errors = [[1 - row[score] for row in rows] for rows in (pretrained, from_scratch)]  # a difference below 0 is better
    difference = paired_difference(*errors)
    interval = f" ± {difference.margin:.3f} (95% interval)" if difference.margin else ""
    verdict = {"better": "helps", "worse": "hurts", "tie": "no clear effect", "unknown": "unknown spread"}
    print(f"{score}, pretrained minus from scratch: {-difference.mean:+.3f}{interval}: {verdict[difference.verdict]}")
    return {"mean": -difference.mean, "margin": difference.margin, "verdict": difference.verdict}


if __name__ == "__main__":
    run_main(main)
