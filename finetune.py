"""Learn tasks from few labels with a trained run, and compare it with models that were not
pretrained.

python finetune.py RUN --task speaker --labels 64    RUN: a folder, a uuid or its first characters,
                                                     or last
python finetune.py RUN --task all                    every task on the run's text
python finetune.py RUN --task FILE                   texts with labels in CSV, TSV or JSON
                                                     lines; docs/tasks.md names the columns
python finetune.py RUN --task FILE.py:NAME           a function of yours that returns a task
python finetune.py RUN --task TASK --save FOLDER     keep the classifier:
                                                     python predict.py FOLDER < texts.txt

Compares the run's model (fine-tuned, and frozen below a linear probe) with the same model from
scratch, a regression on character n-grams, both models together with the n-grams, and the most
frequent label. Each is trained once per draw of labels, at the rate that is best on a part of these.
The result is the fine-tuned model together with the n-grams, as far as the labelled texts show that
these know the labels. Labels may be classes, several per text, one per character or word, or
numbers. docs/tasks.md explains the tasks.
"""

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import torch

from configs.command_line.program import run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from data.tasks.task import PAIR
from runs.files import write_json
from trained.examples import label_names
from trained.load import MOVED, choose_threads, load_trained, moved_corpus
from trained.named_tasks import source_of, tasks_named
from trained.task_results import print_tasks, read_results

DRAWS = 5
LABELS = 64


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__)
    corpus = "where the run's text is, if it has moved"
    parser.add_argument(
        "corpus", metavar=f"{MOVED}PATH", nargs="?", type=moved_corpus, help=corpus
    )
    task = "a name, all, a CSV, TSV or JSON lines file, or FILE.py:NAME"
    parser.add_argument("--task", required=True, metavar="TASK", help=task)
    labels = "labelled texts of each draw (default: %(default)s)"
    parser.add_argument(
        "--labels", type=number(int, 8), default=LABELS, metavar="N", help=labels
    )
    draws = (
        "draws of labelled texts, each with a seed of its own (default: %(default)s)"
    )
    parser.add_argument(
        "--draws", type=number(int, 1), default=DRAWS, metavar="N", help=draws
    )
    balanced = "every label counts the same, rare ones too: in the losses, by weights, and in the"
    balanced += " score, which is the mean recall over labels"
    parser.add_argument("--balanced", action="store_true", help=balanced)
    save = "new folder for the classifier that is the result of the first draw"
    parser.add_argument("--save", type=Path, metavar="FOLDER", help=save)

    return run_script(parser, arguments, compare_models, "requirements-finetune.txt")


def compare_models(options: Namespace) -> None:
    """Learn and compare, and write the results into the folder of the run."""
    from trained.comparison import compare  # needs scikit-learn
    from trained.saved_classifier import check_new, save

    if options.save:
        if options.task == "all":
            raise ConfigError(
                "--save keeps the classifier of one task: name it instead of all"
            )
        check_new(options.save, "--save")

    trained = load_trained(options.run, options.logs, options.corpus)
    run = trained.run
    _ = trained.encoder  # refuse other architectures before anything is trained
    path = run.results / f"tasks-{options.labels}.json"
    for each in run.results.glob(
        "tasks-*.json"
    ):  # the table at the end shows all of them
        read_results(each)  # refuse a damaged file before anything is trained
    n_threads = torch.get_num_threads()
    for name, task in tasks_named(options.task, trained):
        task = replace(task, balanced=options.balanced)
        choose_threads(trained, n_threads)
        n_pool = len(task.pool)
        if options.save and options.labels < n_pool:
            print(
                f"it learns {options.labels} of {n_pool:,} labelled texts: --labels N takes more"
            )
        results, (classifier, weight, ngrams) = compare(
            trained, task, options.labels, options.draws
        )
        key = f"balanced {name}" if task.balanced else name
        sourced = results | {"source": source_of(options.task, name)}
        write_json(path, read_results(path) | {key: sourced}, indent=1)
        if options.save:
            facts = {"task": name, "labels": label_names(task), "results": results}
            with_ngrams = ""
            if ngrams:
                facts["ngrams"] = ngrams.state() | {"model": weight}
                with_ngrams = " with its n-grams"
            save(options.save, run, classifier, **facts)
            predict = f"python predict.py {shlex.quote(str(options.save))}"
            example = f"{predict} TEXT"
            if task.kind == PAIR:
                example = rf"printf 'TEXT\tTEXT\n' | {predict}"
            print(f"the first draw's fine-tuned model{with_ngrams} is saved: {example}")

    print(f"written to {path}")
    print_tasks(run.results)


if __name__ == "__main__":
    run_main(main)
