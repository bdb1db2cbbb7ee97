"""The scores of a run on tasks, as a table and a picture, from the files that `finetune.py` writes."""

from operator import itemgetter
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from configs.keys import ConfigError
from runs.figures import plain_text, save_figure
from runs.schema import MISSING, matches, read_object
from runs.statistics import with_error
from runs.terminal import in_one_line
from trained.saved_classifier import SCORES

PRETRAINED = "pretrained, fine-tuned"
COMBINED = "pretrained, with n-grams"
FROM_SCRATCH = "from scratch"
SCRATCH_COMBINED = "from scratch, n-grams"
PROBE = "pretrained, probe"
ZERO_SHOT = "zero-shot"
NGRAMS = "character n-grams"
CONTEXT = "characters around"
WORD_CONTEXT = "words around"
FREQUENT = "most frequent label"
MEAN = "mean of the numbers"
BASELINES = (NGRAMS, CONTEXT, WORD_CONTEXT, FREQUENT, MEAN)
BEST_BASELINE = "best baseline"
COLUMNS = (PRETRAINED, COMBINED, PROBE, ZERO_SHOT, FROM_SCRATCH, BEST_BASELINE)
PANELS = 4  # per row of the picture
LEGEND = 2  # names beside each other below a panel
AXES = {"labels": "labelled examples", "tokens": "tokens of pretraining"}
MOST_LEVEL = 5  # numbers on an axis; more are turned
SHOWN_WHOLE = 10_000  # numbers below it are written whole on an axis
POINTS: dict[str, Any] = {
    "marker": "o",
    "markersize": 3,
    "linewidth": 1.2,
    "capsize": 2,
}
RESULTS = {
    "labelled": int,
    "scores": lambda value: (
        matches(value, SCORES) and not value.keys().isdisjoint(BASELINES)
    ),
    "ceiling": (float, MISSING),
}
# method -> `mean`, and `margin`: half the width of its 95% interval, or None
Scores = dict[str, dict[str, Any]]


def read_results(path: Path) -> dict[str, Any]:
    """The results in one file, by task; none if it does not exist. Raises RunFolderError."""
    return read_object(path, {str: RESULTS}) if path.exists() else {}


def results_of(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The results of `tasks-N.json` in a run's folder: task -> number of labels -> results.

    Raises ConfigError if there are none.
    """
    tasks: dict[str, dict[int, dict[str, Any]]] = {}
    # the newest counts
    for path in sorted(
        folder.glob("tasks-*.json"), key=lambda path: path.stat().st_mtime
    ):
        for task, results in read_results(path).items():
            scores = with_best_baseline(results["scores"])
            tasks.setdefault(task, {})[results["labelled"]] = results | {
                "scores": scores
            }

    if not tasks:
        raise ConfigError(
            f"{folder.name} has learned no task: run python finetune.py RUN --task all"
        )

    return {task: dict(sorted(of_task.items())) for task, of_task in tasks.items()}


def result_of(scores: Scores) -> str:
    """The name of the method that is the result of `finetune.py`: chosen before the test is read."""
    return COMBINED if COMBINED in scores else PRETRAINED


def with_best_baseline(scores: Scores) -> Scores:
    """The scores, with the score of the best method without a model added."""
    baselines = [scores[name] for name in BASELINES if name in scores]
    return scores | {BEST_BASELINE: max(baselines, key=itemgetter("mean"))}


def gap_closed(results: dict[str, Any]) -> float | None:
    """The fine-tuned model's share of the gap between the best baseline and the ceiling.

    None without a ceiling or an interval, and if the best baseline reaches the ceiling within its
    interval.
    """
    scores = with_best_baseline(results["scores"])
    ceiling = results.get("ceiling")
    best = scores[BEST_BASELINE]["mean"]
    margin = scores[BEST_BASELINE]["margin"]
    if ceiling is None or margin is None or ceiling - best <= margin:
        return None
    return float((scores[PRETRAINED]["mean"] - best) / (ceiling - best))


def print_tasks(folder: Path) -> None:
    """Print the table of a run, and write `tasks.png` into its folder: the score against the number
    of labels."""
    print_scores(results_of(folder), "labels", folder / "tasks.png")


def print_scores(
    tasks: dict[str, dict[int, dict[str, Any]]], unit: str, path: Path
) -> None:
    """Print the scores of each task for several numbers of labels or tokens, the `unit`, and draw
    them against these numbers."""
    width = max(6, *(len(f"{n}") for of_task in tasks.values() for n in of_task))
    headings = "".join(f"{name.removeprefix('pretrained, '):>15}" for name in COLUMNS)
    print(f"\n  {'task':24} {unit:>{width}}{headings}   ceiling  gap closed")
    for task, of_task in tasks.items():
        for number, results in of_task.items():
            cells = ""
            for name in COLUMNS:
                score = results["scores"].get(name)
                cell = (
                    with_error(f"{score['mean']:.3f}", score["margin"]) if score else ""
                )
                cells += f"{cell:>15}"

            ceiling = f"{results['ceiling']:.3f}" if "ceiling" in results else ""
            closed = gap_closed(results)
            share = ""
            if closed is not None:
                share = f"{closed:.0%}" if closed > 0 else "worse"
            name = in_one_line(task)[:24]
            number_cell = f"{number:>{width}}"
            print(f"  {name:24} {number_cell}{cells}{ceiling:>10}{share:>12}".rstrip())

    save_figure(path, figure_of(tasks, AXES[unit]))
    print(f"  score against the number of {unit}: {path}")


def figure_of(tasks: dict[str, dict[int, dict[str, Any]]], axis: str) -> Figure:
    """A panel per task: the scores of each method against the numbers, which an axis of this name
    shows, and the ceiling as a line."""
    columns = min(PANELS, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(layout="constrained")
    figure.set_figwidth(3.2 * columns)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    legend: dict[str, Any] = {}
    for panel, (task, of_task) in zip(panels, tasks.items(), strict=False):
        draw_panel(panel, task, of_task)
        panel.set_xlabel(axis, fontsize=8)
        lines, labels = panel.get_legend_handles_labels()
        legend |= zip(labels, lines, strict=True)

    for panel in panels[len(tasks) :]:
        panel.remove()
    lines = list(legend.values())
    place = "outside lower center"
    n_columns = min(len(legend), LEGEND * columns)
    figure.legend(lines, list(legend), loc=place, ncols=n_columns, fontsize=8)
    n_lines = -(-len(legend) // n_columns)
    figure.set_figheight(2.6 * rows + 0.2 + 0.2 * n_lines)

    return figure


def draw_panel(panel: Axes, task: str, of_task: dict[int, dict[str, Any]]) -> None:
    for i, name in enumerate(COLUMNS):
        points = []
        for number, results in of_task.items():
            if name in results["scores"]:
                score = results["scores"][name]
                points.append((number, score["mean"], score["margin"] or 0.0))

        if points:
            color = "0.6" if name == BEST_BASELINE else f"C{i}"
            numbers, means, margins = zip(*points, strict=True)
            panel.errorbar(numbers, means, margins, color=color, label=name, **POINTS)

    for ceiling in {
        results["ceiling"] for results in of_task.values() if "ceiling" in results
    }:
        panel.axhline(
            ceiling, color="0.4", linestyle=":", linewidth=1.2, label="ceiling"
        )
    low, high = panel.get_ylim()
    # an interval may leave the range of scores
    panel.set_ylim(max(low, -0.02), min(high, 1.02))
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(of_task), map(short, of_task))
    panel.minorticks_off()
    panel.set_title(plain_text(task), fontsize=9)
    panel.tick_params(labelsize=8)
    if len(of_task) > MOST_LEVEL:
        panel.tick_params(axis="x", rotation=60)


def short(number: int) -> str:
    """A number for an axis, in two digits if it is large."""
    if number < SHOWN_WHOLE:
        return str(number)
    return EngFormatter(sep="")(float(f"{number:.2g}"))
