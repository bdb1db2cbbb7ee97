"""Pictures of an audit of masks: shares, random tokens, selection by position, and runs."""

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from auditing.masks.audit import MasksAudit
from auditing.masks.positions import columns_of
from auditing.masks.recipes import BERT_SHARES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, GRAY, RED = "#0969da", "#8c959f", "#cf222e"
LONGEST_RUN = 15


def pictures_of(audit: MasksAudit) -> list[tuple[str, bytes]]:
    """One picture with four panels and its caption; none if nothing is selected. Needs matplotlib."""
    if audit.structure is None:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2)
    draw_shares(panels[0, 0], audit)
    draw_random(panels[0, 1], audit)
    draw_positions(panels[1, 0], audit)
    draw_runs(panels[1, 1], audit)
    return [("What the target selects, and what it puts there.", png(figure))]


def png(figure: "Figure") -> bytes:
    """A figure as a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()


def draw_shares(axes: Any, audit: MasksAudit) -> None:
    """Bars: what stands at the selected positions, next to the nearest recipe's shares."""
    draws = audit.measured.main
    total = max(1, int(draws.selected.sum()))
    found = [int(where.sum()) / total for where in (draws.masked, draws.randomized, draws.kept)]
    recipe = audit.recipe.shares if audit.recipe else BERT_SHARES
    name = audit.recipe.name if audit.recipe else "BERT"
    places = np.arange(3)
    bars = axes.bar(places - 0.2, found, 0.4, color=BLUE, label="found")
    axes.bar(places + 0.2, recipe, 0.4, color=GRAY, label=name)
    axes.bar_label(bars, [f"{share:.1%}" for share in found], padding=2)
    axes.set_xticks(places, ["[MASK]", "random", "unchanged"])
    axes.set(ylim=(0, 1.1), ylabel="share of selected positions", title="At the selected positions")
    axes.legend(frameon=False)


def draw_random(axes: Any, audit: MasksAudit) -> None:
    """A histogram of the random tokens; special ids are red."""
    draws = audit.measured.main
    ids = draws.inputs[draws.randomized]
    n_tokens = draws.tokens.n_tokens
    counts = np.bincount(ids[(ids >= 0) & (ids < n_tokens)], minlength=n_tokens)
    axes.set_title(f"Random tokens ({counts.sum():,})")
    if not counts.sum():
        axes.text(0.5, 0.5, "none", ha="center", va="center", color=GRAY, transform=axes.transAxes)
        axes.set_axis_off()
        return
    n_bins = min(n_tokens, 100)
    binned = np.bincount(np.arange(n_tokens) * n_bins // n_tokens, weights=counts, minlength=n_bins)
    lefts = np.arange(n_bins) * n_tokens / n_bins
    axes.bar(lefts, binned, n_tokens / n_bins, align="edge", color=BLUE)
    special = [id for id in draws.tokens.special if counts[id]]
    if special:
        heights = [binned[id * n_bins // n_tokens] for id in special]
        axes.plot(np.array(special) + 0.5, heights, "v", color=RED, label="special ids")
        axes.legend(frameon=False)
    axes.set(xlabel="id", ylabel="count")


def draw_positions(axes: Any, audit: MasksAudit) -> None:
    """The selected share of every position, and the mean."""
    assert audit.structure is not None
    columns = columns_of(audit.measured.main)
    axes.plot(columns.share, color=BLUE, linewidth=1)
    axes.axhline(audit.structure.rate.value, color=GRAY, linestyle="--", label="mean")
    axes.set(ylim=(0, None), xlabel="position in the window", ylabel="share selected", title="Selection by position")
    axes.legend(frameon=False)


def draw_runs(axes: Any, audit: MasksAudit) -> None:
    """The lengths of runs of selected positions, next to those of independent positions."""
    assert audit.structure is not None
    runs, rate = audit.structure.runs, audit.structure.rate.value
    lengths = np.arange(1, LONGEST_RUN + 1)
    found = np.zeros(LONGEST_RUN)
    shown = runs[:LONGEST_RUN]
    found[: len(shown)] = shown / max(1, runs.sum())
    axes.bar(lengths, found, color=BLUE, label="found")
    axes.plot(lengths, (1 - rate) * rate ** (lengths - 1), "o--", color=GRAY, markersize=4, label="single tokens")
    title = f"Runs of selected positions: {audit.structure.mean_run:.2f} on average"
    axes.set(xlabel="length", ylabel="share of runs", title=title)
    axes.legend(frameon=False)
