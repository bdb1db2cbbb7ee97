"""Fine-tune a trained run to classify texts, and compare it with models that were not pretrained.

python finetune.py RUN --task speaker       who says a speech? RUN: a folder, a uuid or its first characters, or `last`
python finetune.py RUN --task FILE.csv      columns text, label and optionally split (train or test)

Compares the run's model, the same model from scratch, a logistic regression on character n-grams, and the most frequent
label. Both models are trained once per seed. Their learning rates are chosen on a fifth of the training texts. With
--freeze, the encoder is not trained: a logistic regression classifies its vectors.
"""

from argparse import Namespace
from pathlib import Path

from configs.one_line import run_main
from configs.scripts import number, run_parser, run_script
from runs.files import write_json
from trained.load import load_trained
from trained.tasks import SPEAKER, from_csv, speakers

SEEDS = 5


def main(arguments: list[str]) -> int:
    """Fine-tune and compare; returns the exit code."""
    parser = run_parser(__doc__)
    parser.add_argument("--task", required=True, help="speaker, or a CSV file")
    parser.add_argument("--freeze", action="store_true", help="train only a classifier on the encoder's vectors")
    parser.add_argument("--seeds", type=number(int, 1), default=SEEDS, metavar="N", help="default: %(default)s")
    return run_script(parser, arguments, compare_models, "requirements-finetune.txt")


def compare_models(options: Namespace) -> None:
    """Fine-tune and compare, and write the results into the folder of the run."""
    from trained.comparison import compare  # needs scikit-learn

    trained = load_trained(options.run, options.logs)
    _ = trained.encoder  # refuse other architectures before anything is trained
    if options.task == SPEAKER:
        task = speakers(trained.data().loaded.validation, trained.longest)
    else:
        task = from_csv(Path(options.task), trained.longest)
    results = compare(trained, task, options.freeze, options.seeds)
    name = f"finetune-{task.file_name}{'-frozen' * options.freeze}"
    name += "" if options.seeds == SEEDS else f"-seeds-{options.seeds}"
    path = trained.run.path / f"{name}.json"
    write_json(path, results, indent=1)
    print(f"written to {path}")


if __name__ == "__main__":
    run_main(main)
