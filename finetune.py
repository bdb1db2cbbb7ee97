"""Learn tasks from few labels with a trained run, and compare it with models that were not
pretrained.

python finetune.py RUN --task speaker --labels 64     RUN: a folder, a uuid or its first characters,
or `last` python finetune.py RUN --task all                     every task on the run's text python
finetune.py RUN --task FILE.csv                texts with labels; docs/tasks.md names the columns
python finetune.py RUN --task TASK --save FOLDER      keep the classifier: python predict.py FOLDER
< texts.txt

Compares the run's model (fine-tuned, and frozen below a linear probe) with the same model from
scratch, a logistic regression on characters, and the most frequent label. Each is trained once per
draw of labels. docs/tasks.md explains the tasks.
"""

import hashlib
import os
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import torch

from configs.command_line.program import run_main
from configs.command_line.scripts import number, run_parser, run_script
from configs.keys import ConfigError
from configs.own_code import own_task
from configs.references import is_reference, path_and_name
from data.play.grammar import PLAY
from data.tasks import REPORT, TASKS, Task, shakespeare
from data.tasks.table import from_csv
from data.tasks.task import CHARACTER, PAIR
from runs.files import write_json
from trained.examples import label_names
from trained.load import Trained, choose_threads, load_trained
from trained.task_results import print_tasks, read_results

DRAWS = 5
LABELS = 64


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__)
    parser.add_argument("--task", required=True, metavar="TASK", help="a name, all, or a CSV file")
    labels = "labelled texts of each draw (default: %(default)s)"
    parser.add_argument("--labels", type=number(int, 8), default=LABELS, metavar="N", help=labels)
    draws = "draws of labelled texts, each with a seed of its own (default: %(default)s)"
    parser.add_argument("--draws", type=number(int, 1), default=DRAWS, metavar="N", help=draws)
    save = "new folder for the fine-tuned classifier of the first draw"
    parser.add_argument("--save", type=Path, metavar="FOLDER", help=save)
    return run_script(parser, arguments, compare_models, "requirements-finetune.txt")


def compare_models(options: Namespace) -> None:
    """Learn and compare, and write the results into the folder of the run."""
    from trained.comparison import compare  # needs scikit-learn
    from trained.saved_classifier import check_new, save

    if options.save:
        if options.task == "all":
            raise ConfigError("--save keeps the classifier of one task: name it instead of all")
        check_new(options.save, "--save")
    trained = load_trained(options.run, options.logs)
    _ = trained.encoder  # refuse other architectures before anything is trained
    path = trained.run.path / f"tasks-{options.labels}.json"
    for each in trained.run.path.glob("tasks-*.json"):  # the table at the end shows all of them
        read_results(each)  # refuse a damaged file before anything is trained
    most = torch.get_num_threads()
    for name, task in chosen(options.task, trained):
        choose_threads(trained, most)
        if options.save and options.labels < len(task.pool):
            print(
                f"it learns {options.labels} of {len(task.pool):,} labelled texts: --labels N takes more"
            )
        measured, classifier = compare(trained, task, options.labels, options.draws)
        write_json(path, read_results(path) | {name: measured}, indent=1)
        if options.save:
            save(
                options.save,
                trained.run,
                classifier,
                task=name,
                labels=label_names(task),
                results=measured,
            )
            command = f"python predict.py {shlex.quote(str(options.save))}"
            command = (
                rf"printf 'TEXT\tTEXT\n' | {command}" if task.kind == PAIR else f"{command} TEXT"
            )
            print(f"the classifier is saved: {command}")
    print(f"written to {path}")
    print_tasks(trained.run.path)


def chosen(name: str, trained: Trained) -> Iterator[tuple[str, Task]]:
    """The tasks that a name stands for, each with a name for its results. Raises InputError if
    there is none."""
    corpus = trained.run.corpus()["name"]
    by_name = {
        task: (home, build) for home, tasks in TASKS.items() for task, build in tasks.items()
    }
    if name == "all":
        if corpus not in TASKS:
            raise ConfigError(
                f"no task has labels for {corpus}: the corpora with tasks are {', '.join(sorted(TASKS))}"
            )
        for each, build in TASKS[corpus].items():
            task = build(REPORT)
            if task.kind == CHARACTER and not trained.vocabulary.is_characters:
                print(
                    f"{each} is left out: it has a label per character, and the run has other tokens"
                )
            else:
                yield each, task
    elif name == "speaker":
        yield name, shakespeare.speaker(REPORT, trained.data().loaded.name)
    elif name in by_name:
        home, build = by_name[name]
        if corpus != home:
            leak = "" if home == PLAY else ", which may contain its test texts"
            print(f"{name} is a task on {home}, and the run was trained on {corpus}{leak}")
        yield name, build(REPORT)
    elif is_reference(name):
        yield path_and_name(name)[1], own_task(name, REPORT)
    elif name and (Path(name).suffix or os.path.exists(name)):
        task = from_csv(Path(name))
        digest = hashlib.sha256(repr((task.pool, task.test)).encode()).hexdigest()
        # files with the same name have results of their own
        yield f"{task.name} {digest[:8]}", task
    else:
        raise ConfigError(
            f"no task is called {name!r}: use {', '.join(sorted(by_name))}, all, or a CSV file"
        )


if __name__ == "__main__":
    run_main(main)
