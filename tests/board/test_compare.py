"""The pages /runs and /compare in a real browser."""

import contextlib
import re
import sqlite3

import numpy as np
import pytest

from board.comparison import MAX_POINTS, with_rows
from board.run_records import RECORDS
from runs.files import write_json
from runs.schema import METRICS
from tests.board.conftest import LINE, appears, change_config, message, show


def cells(page, column):
    return page.locator(f"tbody tr > :nth-child({column})").all_inner_texts()


def test_runs_are_listed_sorted_filtered_hidden_and_deleted(page, dashboard, make_run):
    runs = [make_run() for _ in range(3)]
    for i, run in enumerate(runs):
        change_config(run, seed=i**3)
        losses = {"loss.valid": 0.5 + i / 10, "accuracy.valid": 0.5}
        run.append_metrics({"step": 40, "seconds": 20.0, **losses})
        run.save_status("completed")
        dashboard.receive(run)

    show(page, f"{dashboard.url}/runs", "tbody tr")

    assert page.locator("tbody .spark path").count() == 3

    page.click("thead button:text-is('loss.valid')")

    assert cells(page, 3) == ["0.500", "0.600", "0.700"]
    assert cells(page, 4)[0] == "50.0%"
    assert cells(page, 5)[0] == "20 s"
    assert cells(page, 6) == ["0", "1", "8"]

    page.click("thead button:text-is('loss.valid')")

    assert cells(page, 3) == ["0.700", "0.600", "0.500"]

    page.fill("#filter", "quick seed=1")

    assert cells(page, 6) == ["1"]

    uuid = runs[1].path.name

    assert (
        page.get_attribute("text=compare these", "href") == f"/compare?run={uuid[:12]}"
    )

    page.click(f"button[aria-label*='Hide'][aria-label$='{uuid[:6]}']")
    appears(page, "text=0 of 3 runs")
    page.reload()  # the address has the filter, the server knows the hidden run
    page.check("#hidden")

    assert cells(page, 6) == ["1"]

    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.click("button:text-is('Delete')")
    appears(page, "text=0 of 2 runs")

    assert str(runs[1].path) in asked[0]
    assert runs[1].metrics_path.exists()
    assert len(dashboard.get("runs/null")["runs"]) == 2
    assert page.outside == []


def test_seeds_are_a_band_and_one_diverged_run_does_not_flatten_the_others(
    page, dashboard, make_run
):
    runs = [make_run() for _ in range(4)]
    change_config(runs[2], masking__masking_prob=0.3)
    change_config(runs[3], masking__masking_prob=0.4)

    for run, last in zip(runs, (0.5, 0.6, 0.7, 1e6), strict=True):
        run.append_metrics(
            {"step": 40, "chars": 400, "seconds": 4.0, "loss.valid": last}
        )
        dashboard.receive(run)

    show(page, f"{dashboard.url}/compare")

    assert page.locator(LINE).count() == 3  # the first two differ only in their seed

    texts = page.locator("svg text").all_text_contents()

    assert max(float(text) for text in texts if text.replace(".", "").isdecimal()) < 20
    assert "1 point above" in texts

    table = page.locator("section:has-text('Keys that differ')")

    assert "masking.masking_prob\t" in table.inner_text()
    # from the newest run
    assert table.locator("td:has-text('0.700')").inner_text() == "0.700 (−999999.300)"

    page.uncheck(f".runs li[data-run='{runs[2].path.name}'] input")

    assert page.locator(LINE).count() == 2

    page.select_option("#x", "chars")
    page.reload()  # the address has the axis and the selection
    page.wait_for_selector(LINE)

    assert (page.locator(LINE).count(), page.input_value("#x")) == (2, "chars")

    page.click("button:text-is('None')")

    assert page.locator(LINE).count() == 0

    page.fill("#filter", runs[0].path.name)
    page.click("button:text-is('All')")

    assert page.locator(LINE).count() == 1

    new = make_run()
    dashboard.receive(new)
    page.wait_for_function(
        "() => document.querySelectorAll('figure .band').length == 1"
    )
    page.fill("#filter", "")
    appears(page, f".runs li[data-run='{new.path.name}'] input:checked")


def test_a_run_that_is_worse_throughout_is_shown(page, dashboard, make_run):
    good = make_run(n_rows=1, **{"loss.valid": 1.3})
    good.append_metrics({"step": 20, "seconds": 2.0, "chars": 200, "loss.valid": 1.0})
    worse = make_run(n_rows=2, **{"loss.valid": 1.9})
    change_config(worse, masking__masking_prob=0.4)
    dashboard.receive(good)
    dashboard.receive(worse)

    show(page, f"{dashboard.url}/compare")
    page.wait_for_function(
        "() => document.querySelectorAll('figure svg path.line').length == 2"
    )

    assert page.locator("svg text:has-text('above')").count() == 0


def test_runs_with_one_evaluation_are_all_shown(page, dashboard, make_run):
    for seed, loss in enumerate((0.75, 2.2)):
        run = make_run(n_rows=1, **{"loss.valid": loss})
        change_config(run, masking__masking_prob=0.2 + seed / 10)
        dashboard.receive(run)

    show(page, f"{dashboard.url}/compare", "figure svg")
    page.wait_for_function(
        "() => document.querySelectorAll('figure svg path.line').length == 2"
    )

    assert page.locator("svg text:has-text('above')").count() == 0


def test_the_pointer_shows_a_value_of_every_run_that_has_one_before_and_one_after(
    page, dashboard, make_run
):
    other = make_run(n_rows=1)
    change_config(other, masking__masking_prob=0.3)
    other.append_metrics({"step": 30, "chars": 300, "seconds": 3.0, "loss.valid": 0.25})

    for run in (make_run(), other):
        run.save_status("completed")
        dashboard.receive(run)

    show(page, f"{dashboard.url}/compare")
    page.locator("figure svg").first.focus()
    for _ in range(2):  # from the end, at 3 seconds
        page.keyboard.press("ArrowLeft")

    assert page.locator(".tip b").inner_text() == "seconds of training 2"

    values = page.locator(".tip div").all_inner_texts()

    assert len(values) == 2
    assert any(re.search(r" at [13]$", value) for value in values)


def test_seeds_of_which_one_is_long_have_a_mean_without_zigzag(
    page, shared_dashboard, make_run
):
    long = make_run(n_rows=MAX_POINTS + 2, **{"loss.valid": 1.0})
    short = make_run(n_rows=300, **{"loss.valid": 2.0})
    shared_dashboard.receive(long)
    shared_dashboard.receive(short)
    show(
        page,
        f"{shared_dashboard.url}/compare?run={long.path.name}&run={short.path.name}",
    )
    heights = re.findall(r",([\d.]+)", page.locator(LINE).get_attribute("d"))

    assert len(set(heights)) == 2  # the mean of both, and then the longer run alone


def test_runs_with_other_tokens_share_an_axis_only_of_the_loss_per_character(
    page, dashboard, make_run
):
    of_tokens = make_run(**{"loss.valid_per_character": 1.0})
    change_config(of_tokens, data__tokens="bpe:256")
    of_another_text = make_run()
    of_another_text.save_corpus("tiny_shakespeare", "1" * 64)

    for run in (make_run(), of_tokens, of_another_text):
        run.save_reference_lines({"counting": 1.0 + len(run.corpus()["name"])})
        dashboard.receive(run)

    show(page, f"{dashboard.url}/compare")

    assert page.locator("figure").count() == page.locator(LINE).count() == 3

    titles = page.locator("figcaption > span:first-child").all_inner_texts()

    assert "play, bpe:256, loss.valid, nats per masked token" in titles

    page.select_option("#y", "loss.valid_per_character")

    assert (page.locator("figure").count(), page.locator(LINE).count()) == (1, 3)


@pytest.mark.parametrize("at_once", [1, 7, 1_000, 10_000])
def test_a_long_curve_keeps_evenly_spaced_rows_however_it_is_delivered(at_once):
    n = 10 * MAX_POINTS + 3
    rows = [
        {"step": i, "chars": i, "seconds": float(i), "loss.valid": 1.0}
        for i in range(n)
    ]
    curve = []

    for i in range(0, n, at_once):
        curve = with_rows(curve, rows[i : i + at_once])

    steps = [point[1] for point in curve]

    assert MAX_POINTS / 2 < len(steps) <= MAX_POINTS + 1
    assert steps[-1] == n - 1
    assert len(set(np.diff(steps[:-1]))) == 1


def test_a_value_that_is_no_number_leaves_the_comparison_whole(
    page, shared_dashboard, make_run
):
    run = make_run()
    shared_dashboard.receive(run)
    stored = run.metrics_path.stat().st_size

    for step, wrong in enumerate(("oops", [[1]], None, 10**200), start=40):
        row = {"step": step, "loss.valid": wrong, "chars": wrong, "seconds": wrong}
        before = stored
        stored = shared_dashboard.post(run, message(row, stored))["stored"][METRICS]

        assert stored > before

    uuid = run.path.name
    show(
        page,
        f"{shared_dashboard.url}/compare?run={uuid}",
        f".runs li[data-run='{uuid}']",
    )
    page.wait_for_selector(LINE)

    assert page.locator("#absent").count() == 0


def test_runs_in_the_address_that_are_unknown_are_named_until_others_are_chosen(
    page, dashboard, make_run
):
    run = make_run()
    dashboard.receive(run)
    named = "[role=alert]:text-is('No run begins with feedface.')"
    show(page, f"{dashboard.url}/compare?run=feedface&run={run.path.name[:6]}", named)

    assert page.locator(LINE).count() == 1

    page.click("button:text-is('None')")

    assert page.inner_text("[role=alert]") == ""
    assert not page.is_visible("text=Keys that differ")


def test_runs_that_an_earlier_version_stored_come_back_with_an_import(
    dashboard, make_run
):
    run = make_run(chars=100, seconds=5.0)
    dashboard.receive(run)
    dashboard.end()

    with contextlib.closing(sqlite3.connect(dashboard.database)) as connection:
        # it was another one
        connection.execute("DELETE FROM entries WHERE namespace = ?", (RECORDS,))
        connection.commit()

    dashboard.start()
    dashboard.receive(run)
    losses = [3.0, 1.5, 1.0]

    assert dashboard.summary(run)["curve"]["loss.valid"] == losses
    assert dashboard.series(run)["loss.valid"][1] == losses


def test_trials_are_shown_with_their_intervals_over_pairs(page, dashboard):
    intervals = {
        "model.n_layers=2": [
            [1, -0.03, None, None],
            [2, -0.02, None, None],
            [3, -0.022, -0.06, 0.016],
            [4, -0.021, -0.031, -0.012],
        ]
    }
    options = {"by": "loss.valid", "equal": "steps", "smallest": 0.01}
    content = options | {"base": "preset=quick", "intervals": intervals, "runs": {}}
    folder = dashboard.database.parent / "trials"
    write_json(folder / "1" / "trial.json", content)
    write_json(folder / "2" / "trial.json", {"runs": {}})  # without a pair

    show(page, f"{dashboard.url}/compare")
    texts = page.locator(".trials svg text").all_text_contents()

    assert page.locator(".trials figure").count() == 1
    assert page.locator(".trials figcaption").inner_text().startswith("trial against")
    assert "model.n_layers=2 -0.021" in texts
    assert {" -0.031", " -0.012", "no change 0.000"} <= set(texts)
    assert len(page.locator(".trials path.band").first.get_attribute("d")) > 20
