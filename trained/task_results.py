"""The scores of a run on tasks, as a table and a picture, from the files that `finetune.py` writes."""

from operator import itemgetter
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from configs.keys import ConfigError
from runs.figures import plain_text, save_figure
from runs.schema import MISSING, RunFolderError, checked, matches, read_object
from runs.statistics import with_error
from trained.saved_classifier import SCORES

PRETRAINED, FROM_SCRATCH, PROBE, ZERO_SHOT = (
    "pretrained, fine-tuned",
    "from scratch",
    "pretrained, probe",
    "zero-shot",
)
NGRAMS, CONTEXT, FREQUENT = "character n-grams", "characters around", "most frequent label"
BASELINES = (NGRAMS, CONTEXT, FREQUENT)
BEST_BASELINE = "best baseline"
COLUMNS = (PRETRAINED, PROBE, ZERO_SHOT, FROM_SCRATCH, BEST_BASELINE)
PANELS = 4  # per row of the picture
POINTS: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.2, "capsize": 2}
RESULTS = {
    "labelled": int,
    "scores": lambda value: matches(value, SCORES) and not value.keys().isdisjoint(BASELINES),
    "ceiling": (float, MISSING),
}
# method -> `mean`, and `margin`: half the width of its 95% interval, or None
Scores = dict[str, dict[str, Any]]


def read_results(path: Path) -> dict[str, Any]:
    """The results in one file, by task; none if it does not exist. Raises RunFolderError."""
    found = read_object(path, {}) if path.exists() else {}
    return checked(found, dict.fromkeys(found, RESULTS), str(path), RunFolderError)


def results_of(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """The results of `tasks-N.json` in a run's folder: task -> number of labels -> results.

    Raises ConfigError if there are none.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    # the newest counts
    for path in sorted(folder.glob("tasks-*.json"), key=lambda path: path.stat().st_mtime):
        for task, results in read_results(path).items():
            scores = with_best_baseline(results["scores"])
            found.setdefault(task, {})[results["labelled"]] = results | {"scores": scores}
    if not found:
        raise ConfigError(
            f"{folder.name} has learned no task: run python finetune.py {folder.name} --task all"
        )
    return {task: dict(sorted(of_task.items())) for task, of_task in found.items()}


def with_best_baseline(scores: Scores) -> Scores:
    """The scores, with the score of the best method without a model added."""
    return scores | {
        BEST_BASELINE: max(
            (scores[name] for name in BASELINES if name in scores), key=itemgetter("mean")
        )
    }


def gap_closed(results: dict[str, Any]) -> float | None:
    """The fine-tuned model's share of the gap between the best baseline and the ceiling.

    None without a ceiling or an interval, and if the best baseline reaches the ceiling within its
    interval.
    """
    scores, ceiling = with_best_baseline(results["scores"]), results.get("ceiling")
    best, margin = scores[BEST_BASELINE]["mean"], scores[BEST_BASELINE]["margin"]
    if ceiling is None or margin is None or ceiling - best <= margin:
        return None
    return float((scores[PRETRAINED]["mean"] - best) / (ceiling - best))


def print_tasks(folder: Path) -> None:
    """Print the table of a run, and write `tasks.png` into its folder: the score against the number
    of labels."""
    found = results_of(folder)
    headings = "".join(f"{name.removeprefix('pretrained, '):>15}" for name in COLUMNS)
    print(f"\n  {'task':24} {'labels':>6}{headings}   ceiling  gap closed")
    for task, of_task in found.items():
        for n_labels, results in of_task.items():
            scores, closed = results["scores"], gap_closed(results)
            shown = {
                name: with_error(f"{score['mean']:.3f}", score["margin"])
                for name, score in scores.items()
            }
            cells = "".join(f"{shown.get(name, ''):>15}" for name in COLUMNS)
            ceiling = f"{results['ceiling']:.3f}" if "ceiling" in results else ""
            share = "" if closed is None else f"{closed:.0%}" if closed > 0 else "worse"
            print(f"  {task[:24]:24} {n_labels:>6}{cells}{ceiling:>10}{share:>12}".rstrip())
    save_figure(folder / "tasks.png", figure_of(found))
    print(f"  score against the number of labels: {folder / 'tasks.png'}")


def figure_of(found: dict[str, dict[int, dict[str, Any]]]) -> Figure:
    """A panel per task: the scores of each method against the number of labels, and the ceiling as
    a line."""
    columns = min(PANELS, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (task, of_task) in zip(panels, found.items(), strict=False):
        draw_panel(panel, task, of_task)
    for panel in panels[len(found) :]:
        panel.remove()
    handles = [panel.get_legend_handles_labels() for panel in panels[: len(found)]]
    legend = {
        label: line for lines, labels in handles for line, label in zip(lines, labels, strict=True)
    }
    figure.legend(
        list(legend.values()),
        list(legend),
        loc="outside lower center",
        ncols=len(legend),
        fontsize=8,
    )
    return figure


def draw_panel(panel: Axes, task: str, of_task: dict[int, dict[str, Any]]) -> None:
    for i, name in enumerate(COLUMNS):
        scores = {
            n: results["scores"][name]
            for n, results in of_task.items()
            if name in results["scores"]
        }
        means = [score["mean"] for score in scores.values()]
        margins = [score["margin"] or 0.0 for score in scores.values()]
        if scores:
            color = "0.6" if name == BEST_BASELINE else f"C{i}"
            panel.errorbar(list(scores), means, margins, color=color, label=name, **POINTS)
    for ceiling in {results["ceiling"] for results in of_task.values() if "ceiling" in results}:
        panel.axhline(ceiling, color="0.4", linestyle=":", linewidth=1.2, label="ceiling")
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, -0.02), min(high, 1.02))  # an interval may leave the range of scores
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(of_task), [str(n) for n in of_task])
    panel.minorticks_off()
    panel.set_title(plain_text(task), fontsize=9)
    panel.tick_params(labelsize=8)
    panel.set_xlabel("labelled examples", fontsize=8)
