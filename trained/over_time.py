"""The scores of tasks over the course of a training, from the checkpoints that a run has kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.keys import ConfigError
from runs.files import write_json
from runs.run_folder import RunFolder
from trained.comparison import compare
from trained.kept import checkpoints_of, trained_tokens
from trained.load import load
from trained.named_tasks import tasks_named
from trained.task_results import print_scores, read_results, results_of


def tasks_over_time(run: RunFolder) -> None:
    """Learn the tasks of a run at each kept checkpoint too, with equally many labels and draws.

    Prints the scores, and draws them against the tokens in `tasks_over_time.png`. Raises
    ConfigError if the run has learned no task or kept no checkpoint.
    """
    results_of(run.results)  # refuse a run without tasks
    *history, _ = checkpoints_of(run)
    if not history:
        raise ConfigError(
            f"{run.path} kept no checkpoint: checkpoint.keep_at keeps them"
        )
    for path in sorted(run.path.glob("tasks-*.json")):
        for key, results in read_results(path).items():
            for each in history:
                learn(each, each.results / path.name, key, results)

    by_tokens = {trained_tokens(each): each for each in [*history, run]}
    tasks: dict[str, dict[int, dict[str, Any]]] = {}
    for tokens in sorted(by_tokens):
        for task, of_task in results_of(by_tokens[tokens].results).items():
            for n_labels, results in of_task.items():
                over_time = tasks.setdefault(f"{n_labels} labels, {task}", {})
                over_time[tokens] = results
    print_scores(tasks, "tokens", run.path / "tasks_over_time.png")


def learn(run: RunFolder, path: Path, key: str, results: dict[str, Any]) -> None:
    """Learn a task as another checkpoint has, unless the file `path` has its results."""
    known = read_results(path)
    if key in known:
        return
    print(f"\n{run.name}")
    trained = load(run)
    source = results.get("source", key)
    for _, task in tasks_named(source, trained):
        task = replace(task, balanced=key.startswith("balanced "))
        learned, _ = compare(trained, task, results["labelled"], results["draws"])
        write_json(path, known | {key: learned | {"source": source}}, indent=1)
