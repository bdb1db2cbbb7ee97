"""The page /compare in a real browser."""

import contextlib
import json
import sqlite3

import numpy as np
import pytest

from board.comparison import MAX_POINTS, with_rows
from board.run_records import CURVES, RECORDS
from runs.delivery import STORED, ask
from runs.schema import METRICS
from tests.board.conftest import WITHIN, Dashboard, message


def cells(page, column: int) -> list[str]:
    return page.locator(f"#runs tr td.value:nth-child({column})").all_inner_texts()


def test_runs_are_listed_sorted_and_drawn_with_their_seeds_as_a_band(page, dashboard: Dashboard, make_run):
    runs = [make_run(**{"chars": 100, "seconds": 5.0}) for _ in range(3)]
    runs[2].save_config(runs[2].config() | {"masking.masking_prob": 0.3})
    for seed, run in enumerate(runs):
        run.save_config(run.config() | {"seed": seed})
        run.append_metrics({"step": 40, "chars": 400, "seconds": 20.0, "loss.valid": 0.5 + seed / 10})
        run.save_status("completed")
        dashboard.receive(run)
    page.goto(f"{dashboard.url}/compare")
    page.wait_for_selector("#runs tr")
    assert len(cells(page, 2)) == 3
    page.click("#columns button:text-is('loss.valid')")
    assert cells(page, 5) == ["0.5000", "0.6000", "0.7000"]
    page.click("#columns button:text-is('loss.valid')")
    assert cells(page, 5) == ["0.7000", "0.6000", "0.5000"]
    assert sorted(cells(page, 9)) == ["0", "1", "2"]
    assert cells(page, 10) == ["completed"] * 3
    assert page.locator("#curves path.line").count() == 2  # the first two differ only in their seed
    labels = page.locator("#curves .label").all_text_contents()
    assert sorted(label.rpartition(", ")[2] for label in labels) == ["1 seed", "2 seeds"]
    page.uncheck(f"#runs tr[data-run='{runs[2].path.name}'] input")
    assert page.locator("#curves path.line").count() == 1
    page.select_option("#axis", "chars")
    assert "characters" in (page.text_content("#curves") or "")
    new = make_run()
    dashboard.receive(new)
    page.wait_for_selector(f"#runs tr[data-run='{new.path.name}']", timeout=WITHIN)
    assert page.outside == []


def test_a_run_with_one_evaluation_is_a_dot_and_a_new_run_is_added(page, dashboard: Dashboard, make_run):
    dashboard.receive(make_run(n_rows=1, chars=100, seconds=5.0))
    page.goto(f"{dashboard.url}/compare")
    page.wait_for_selector("#curves .dot")
    new = make_run(n_rows=0)
    new.save_config(new.config() | {"masking.masking_prob": 0.3})
    dashboard.receive(new)
    new.append_metrics({"step": 1, "chars": 100, "seconds": 6.0, "loss.valid": 2.0})
    dashboard.receive(new)
    page.locator("#curves .dot").nth(1).wait_for(timeout=WITHIN)


def test_a_run_that_was_changed_by_hand_says_so(shared_dashboard: Dashboard, make_run):
    run = make_run()
    run.append_event({"event": "changed by hand", "step": 30, "after": {}})
    shared_dashboard.receive(run)
    listed = ask(f"{shared_dashboard.url}/api/folio/runs", "GET", {}, 10, {"runs": list})["runs"]
    (changes,) = [entry["changes"] for entry in listed if entry["uuid"] == run.path.name]
    assert changes == "(changed by hand)"


def test_labmls_comparison_leads_here(page, shared_dashboard: Dashboard, make_run):
    run = make_run(chars=100, seconds=5.0)
    run.append_metrics({"step": 40, "chars": 400, "seconds": 20.0, "loss.valid": 0.5})
    shared_dashboard.receive(run)
    page.goto(f"{shared_dashboard.url}/run/{run.path.name}/compare")
    page.wait_for_selector("#curves path.line")
    assert page.url.endswith(f"/compare?run={run.path.name}")


@pytest.mark.parametrize("at_once", [1, 7, 1_000, 10_000])
def test_a_long_curve_keeps_evenly_spaced_rows_however_it_is_delivered(at_once):
    n = 10 * MAX_POINTS + 3
    rows = [{"step": i, "chars": i, "seconds": float(i), "loss.valid": 1.0} for i in range(n)]
    curve: list = []
    for i in range(0, n, at_once):
        curve = with_rows(curve, rows[i : i + at_once])
    steps = [point[1] for point in curve]
    assert MAX_POINTS / 2 < len(steps) <= MAX_POINTS + 1
    assert steps[-1] == n - 1
    assert len(set(np.diff(steps[:-1]))) == 1


def test_a_value_that_is_no_number_leaves_the_comparison_whole(page, shared_dashboard: Dashboard, make_run):
    run = make_run()
    shared_dashboard.receive(run)
    url = f"{shared_dashboard.url}/api/folio/runs/{run.path.name}"
    stored = run.metrics_path.stat().st_size
    for i, wrong in enumerate(("oops", [[1]], None, 10**200)):
        row = {"step": 40 + i, "loss.valid": wrong, "chars": wrong, "seconds": wrong}
        before, stored = stored, ask(url, "POST", message(row, stored), 10, STORED)["stored"][METRICS]
        assert stored > before
    page.goto(f"{shared_dashboard.url}/compare?run={run.path.name}")
    page.wait_for_selector(f"#runs tr[data-run='{run.path.name}']")
    assert "does not answer" not in page.inner_text("#message")


def test_runs_that_an_earlier_version_stored_get_their_curve_with_an_import(dashboard: Dashboard, make_run):
    run = make_run(chars=100, seconds=5.0)
    dashboard.receive(run)
    dashboard.end()
    with contextlib.closing(sqlite3.connect(dashboard.database)) as connection:
        connection.execute("DELETE FROM entries WHERE namespace = ?", (CURVES,))
        record = json.dumps({"status": "in progress", "rows": 3, "hardware": 0, "log": 30})
        connection.execute("UPDATE entries SET value = ? WHERE namespace = ?", (record, RECORDS))
        connection.commit()
    dashboard.start()
    dashboard.receive(run)
    (listed,) = ask(f"{dashboard.url}/api/folio/runs", "GET", {}, 10, {"runs": list})["runs"]
    assert listed["curve"]["loss.valid"] == [3.0, 1.5, 1.0]
    assert dashboard.series(run)["loss.valid"] == ([10, 20, 30], [3.0, 1.5, 1.0])
