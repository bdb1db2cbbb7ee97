"""Fine-tune a trained run to classify texts, and compare it with models that were not pretrained.

python finetune.py RUN --task speaker       who says a speech? RUN: a folder, a uuid or its first characters, or `last`
python finetune.py RUN --task FILE.csv      columns text, label and optionally split (train or test)

Compares the run's model, the same model from scratch, a logistic regression on character n-grams, and the most frequent
label. Both models are trained once per seed. Their learning rates are chosen on a fifth of the training texts. With
--freeze, the encoder is not trained: a logistic regression classifies its vectors.
"""

import os
from argparse import RawDescriptionHelpFormatter
from pathlib import Path

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from data.corpus import CorpusError
from runs.files import ROOT, write_json
from runs.run_folder import RunFolderError
from trained.load import load_trained
from trained.tasks import from_csv, speakers
from training.checkpoint import CheckpointError

SPEAKER = "speaker"
SEEDS = 5


def main(arguments: list[str]) -> int:
    """Fine-tune and compare; returns the exit code."""
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    parser.add_argument("--task", required=True, help="speaker, or a CSV file")
    parser.add_argument("--freeze", action="store_true", help="train only a classifier on the encoder's vectors")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="default: %(default)s")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_args(arguments)
        if options.seeds < 1:
            raise ConfigError(f"--seeds {options.seeds} is below 1")
        if options.task != SPEAKER and not os.path.exists(options.task):
            raise ConfigError(f"--task {options.task}: found no such CSV file; the other choice is {SPEAKER}")
        from trained.comparison import compare  # needs scikit-learn

        run = load_trained(options.run, options.logs)
        _ = run.encoder  # refuse other architectures before anything is trained
        if options.task == SPEAKER:
            task = speakers(run.data().loaded.validation, run.longest)
        else:
            task = from_csv(Path(options.task), run.longest)
        results = compare(run, task, options.freeze, options.seeds)
    except ModuleNotFoundError as error:
        return fail(f"{error.name} is not installed: pip install -r requirements-finetune.txt")
    except (ConfigError, CorpusError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    name = f"finetune-{Path(task.name).stem}{'-frozen' * options.freeze}"
    path = run.run.path / (f"{name}.json" if options.seeds == SEEDS else f"{name}-seeds-{options.seeds}.json")
    write_json(path, results, indent=1)
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    run_main(main)
