"""The plots are written whatever a run's rows and names hold."""

import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from runs.curves import draw_losses, draw_reference_lines, save_curves, save_measures
from runs.figures import label_ends, plain_text
from tests.runs.conftest import metrics_row

PNG = b"\x89PNG"
NAMES = [
    "\udcff.txt",
    "$x^{$.txt",
    "$a$",
    "\\$a$$",
    "a\x1b[31mb\n\0",
    "x" * 5_000,
    "中文 🎭",
    "",
]


def rows(n=3, **changed):
    return [metrics_row(step) | changed for step in range(1, n + 1)]


NO_VALUES = dict.fromkeys(("loss.train", "loss.valid"))


@pytest.mark.parametrize("drawn", [[], rows(), rows(**NO_VALUES)])
def test_missing_rows_and_values_that_are_null_leave_gaps(tmp_path, drawn):
    path = tmp_path / "curves.png"
    save_curves(path, drawn, {"unigram": 3.3}, "play")

    assert path.read_bytes().startswith(PNG)


def test_a_line_far_below_the_curves_and_a_loss_far_above_them_leave_room_for_them(
    tmp_path,
):
    high = rows(39, **{"loss.valid": 1.0})
    high.append(metrics_row(40) | {"loss.valid": 1e3})

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as matplotlib does if a text leaves no room
        for drawn in (rows(1), high):
            lines = {"uniform": 100.0, "counting": 0.01}
            save_curves(tmp_path / "curves.png", drawn, lines, "play")


def test_a_few_high_losses_and_the_lines_above_the_others_are_cut_off():
    axes = Figure().subplots()
    drawn = rows(40, **{"loss.valid": 1.0})
    drawn[0]["loss.valid"] = 9.0
    draw_losses(axes, drawn)
    draw_reference_lines(axes, {"uniform": 5.0, "counting": 0.1})
    low, high = axes.get_ylim()

    assert low < 0.1
    assert 1.0 < high < 5.0

    (text,) = axes.texts

    assert text.get_text().startswith("counting")


def test_without_a_standard_error_the_losses_are_drawn_without_a_band():
    """A corpus with one validation window has no standard error."""
    axes = Figure().subplots()
    draw_losses(axes, rows(**{"loss.valid_stderr": None}))

    assert list(axes.lines[0].get_ydata()) == [row["loss.valid"] for row in rows()]
    for band in axes.collections:
        assert not any(len(path.vertices) for path in band.get_paths())


def test_a_single_evaluation_is_visible():
    """A line through one point has no length."""
    figure = Figure()
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axis("off")

    for drawn in ([], rows(1)):
        draw_losses(axes, drawn)
        canvas.draw()

        assert (np.asarray(canvas.buffer_rgba()) < 255).any() == bool(drawn)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_name_can_be_drawn(tmp_path, name):
    figure = Figure()
    axes = figure.subplots()

    with warnings.catch_warnings():
        # the font lacks some scripts
        warnings.filterwarnings("ignore", message="Glyph")
        axes.set_title(plain_text(name))
        draw_reference_lines(axes, {name: 3.0})
        figure.savefig(tmp_path / "names.png")

    assert axes.title.get_text() == plain_text(name)


def test_a_name_is_drawn_as_it_is():
    assert plain_text("play, 0123") == "play, 0123"
    assert plain_text("$5") == r"\$5"  # which matplotlib draws as $5
    assert plain_text("a\nb\udcff") == r"a\nb\udcff"
    assert plain_text("/home/" + "x" * 100 + "/text.txt", limit=10) == "…x/text.txt"


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    axes = Figure().subplots()
    for name, last in (("a", 1.0), ("b", 1.001), ("c", float("nan")), ("d", 2.0)):
        axes.plot([0, 1], [2.0, last], label=name)

    label_ends(axes, axes.lines)

    assert [text.get_text() for text in axes.texts] == [
        " a 1.000",
        " b 1.001",
        " d 2.000",
    ]

    heights = [text.get_position()[1] for text in axes.texts]

    assert min(np.diff(heights)) >= 0.05 - 1e-9


def test_measures_without_characters_in_a_class_are_drawn(tmp_path):
    nothing = {"loss": None, "accuracy": None, "n": 0}
    something = {"loss": 1.0, "accuracy": 0.5, "n": 3}
    results = {
        "masking_rates": {"15%": something, "uniform": nothing},
        "counting": {"15%": something, "uniform": something},
        "by_class": {"capitals": nothing, "space": something},
        "by_distance": {"1": nothing},
    }
    save_measures(tmp_path / "evaluation.png", results, "$ 0123")

    assert (tmp_path / "evaluation.png").read_bytes().startswith(PNG)
