"""The table and the picture of compared training runs.

Runs are compared by seed: each variant's loss minus its base's with the same seed. runs/statistics.py defines a tie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from runs.figures import save_figure
from runs.files import write_atomically
from runs.statistics import Difference, paired_difference, standard_error, with_error

Results = Mapping[str, Mapping[int, Mapping[str, Any]]]  # variant -> seed -> results of the run
COLORS = {"better": "C2", "worse": "C3", "tie": "grey", "unknown": "lightgrey"}
LEGEND = (
    "Losses are in nats per masked character: the mean over seeds with its standard error and, in brackets, the"
    " difference from {base} with its standard error, paired by seed. A difference is a tie if its 95% interval"
    " (Student's t) contains zero, and unknown with one seed. None is shown between windows of different lengths."
)


@dataclass(frozen=True)
class Report:
    """A comparison of trained runs, shown as a Markdown table and as a PNG."""

    title: str
    note: str  # what was trained and how
    base: str  # what the differences are from, in words
    bases: Mapping[str, str]  # variant -> the variant it is compared with, if any
    losses: Mapping[str, str]  # names in the results -> column headings
    base_loss: str = ""  # the loss of the base that all losses are compared with; empty: each with the same loss
    verdicts: Mapping[str, str] = field(default_factory=dict)  # other words for some of Difference.verdict
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # heading -> variant -> text

    def save(self, path: Path, measured: Mapping[str, Any]) -> None:
        """Print the table of the results of `run_trials`; write it as `path`.md and the picture as `path`.png."""
        text = self.markdown(measured["trials"], measured["machine"])
        print("\n" + text)
        write_atomically(path.with_suffix(".md"), text.encode())
        save_figure(path.with_suffix(".png"), self.figure(by_variant(measured["trials"])))

    def difference(self, results: Results, loss: str, variant: str) -> Difference | None:
        """The loss of a variant minus that of its base; None if the two are not compared."""
        own, base = results[variant], results.get(self.bases.get(variant, ""), {})
        lengths = {run["seq_len"] for run in (*own.values(), *base.values())}
        pairs = [(own[seed][loss], base[seed][self.base_loss or loss]) for seed in own if seed in base]
        if not pairs or (loss == "loss.valid_at_seq_len" and len(lengths) > 1):
            return None
        return paired_difference(*zip(*pairs, strict=True))

    def markdown(self, rows: Sequence[Mapping[str, Any]], machine: Mapping[str, str]) -> str:
        """The table under a text that says what was compared, where and when."""
        results, seeds = by_variant(rows), len({row["seed"] for row in rows})
        headings = ["variant", *self.losses.values(), *self.columns, "characters"]
        lines = [
            f"# {self.title}",
            "",
            f"{self.note} {seeds} seed{'s' * (seeds > 1)}; {machine['machine']}, {machine['threads']} threads, torch"
            f" {machine['torch']}, commit {', '.join(sorted({row['commit'] for row in rows}))}, {machine['date']}.",
            "",
            LEGEND.format(base=self.base),
            "",
            f"| {' | '.join(headings)} |",
            "|---" * len(headings) + "|",
        ]
        for variant, runs in results.items():
            cells = [variant]
            for loss in self.losses:
                values = [run[loss] for run in runs.values()]
                difference = self.difference(results, loss, variant)
                text = with_error(f"{fmean(values):.3f}", standard_error(values))
                if difference:
                    verdict = self.verdicts.get(difference.verdict, difference.verdict)
                    text += f" ({with_error(f'{difference.mean:+.3f}', difference.stderr)}, {verdict})"
                cells.append(text)
            cells += [column.get(variant, "") for column in self.columns.values()]
            cells.append(f"{median(run['chars'] for run in runs.values()) / 1e6:.2f} M")
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def figure(self, results: Results) -> Figure:
        """One panel of bars per loss, with the 95% intervals of the differences as whiskers; and the curves, if any."""
        has_curves = all("curve" in run for runs in results.values() for run in runs.values())
        figure = Figure(figsize=(11, max(3.5, 0.3 * len(results) + 1.5)), layout="constrained")
        panels = figure.subplots(1, len(self.losses) + has_curves, squeeze=False)[0]
        for axes, (loss, title) in zip(panels, self.losses.items(), strict=False):
            for y, (variant, runs) in enumerate(results.items()):
                difference = self.difference(results, loss, variant) or Difference(0, None, 0)
                mean = fmean(run[loss] for run in runs.values())
                axes.barh(y, mean, color=COLORS[difference.verdict], xerr=difference.margin)
                axes.text(0.02, y, f"{mean:.2f}", verticalalignment="center", fontsize="small")
            axes.set_yticks(range(len(results)), list(results) if axes is panels[0] else [""] * len(results))
            axes.invert_yaxis()
            axes.margins(y=0.02)
            axes.set_xlim(left=0)
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("loss (nats)")
        if has_curves:
            draw_curves(panels[-1], results)
        colors = f"green is better than {self.base}, red worse, grey a tie, light unknown or not compared"
        figure.suptitle(f"{self.title}: {colors};\nwhiskers are 95% intervals of the difference", fontsize="medium")
        return figure


def by_variant(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, Mapping[str, Any]]]:
    """The results of trials by variant and seed."""
    results: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        results.setdefault(row["variant"], {})[row["seed"]] = row["results"]
    return results


def draw_curves(axes: Axes, results: Results) -> None:
    """Validation loss over seconds of training, one curve per run."""
    for i, (variant, runs) in enumerate(results.items()):
        for n, run in enumerate(runs.values()):
            axes.plot(*zip(*run["curve"], strict=True), ".-", color=f"C{i}", label=variant if n == 0 else None)
    axes.axhline(run["counting"], color="grey", linestyle=":", label="counting")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("loss.valid (nats)")
    axes.legend()
