"""Pages in a browser: an open page shows what happens to its run, and HTML in a log runs no script."""

import os
import signal
import time
from pathlib import Path

import pytest

from runs.delivery import RefusedError
from tests.board.conftest import LINE, appears, evaluate, grown, shape, show
from tests.conftest import until


def test_points_appear_on_a_page_opened_before_the_first_or_after_the_last(
    page, shared_dashboard, make_run
):
    run = make_run(n_rows=0)
    with run.locked():
        delivery = shared_dashboard.receive(run)
        show(page, delivery.page, ".state.in-progress")
        drawn = shape(page)

        assert drawn == ""

        for step in (10, 20):
            evaluate(delivery, step, 30.0 / step)
            drawn = grown(page, drawn)

        run.save_status("interrupted")
        delivery.send()
        appears(page, ".state.interrupted")
        appears(page, "#knobs", state="hidden")

    assert page.outside == []

    show(page, delivery.page)  # opened again: the run has ended, and is then resumed
    page.wait_for_selector(".state.interrupted")
    drawn = shape(page)

    with run.locked():
        run.save_status("in progress")
        evaluate(delivery)
        grown(page, drawn)
        appears(page, ".state.in-progress")


def test_the_list_shows_new_runs_and_how_they_end(page, dashboard, make_run):
    page.goto(f"{dashboard.url}/runs")  # empty
    page.wait_for_load_state("load")
    run = make_run()

    with run.locked():
        delivery = dashboard.receive(run)
        appears(page, f'a[href="/run/{run.path.name}"]')
        run.save_status("crashed", "no memory")
        delivery.send()
        appears(page, ".state.crashed")


@pytest.mark.slow
def test_the_focus_stays_when_lists_are_drawn_again(page, live, shared_dashboard):
    uuid = live.run.path.name
    focused = "() => document.activeElement.id"
    places = [
        ("runs", f"hide-{uuid}"),
        ("runs", "sort-text"),
        ("compare", f"box-{uuid}"),
    ]

    for step, (path, name) in enumerate(places):
        page.goto(f"{shared_dashboard.url}/{path}")
        page.locator(f"[id='{name}']").focus()
        page.evaluate("() => document.activeElement.isOld = true")
        loss = 0.125 + step / 100
        evaluate(live, 40 + step, loss)
        appears(page, f"[data-run='{uuid}']:has-text('{loss:.3f}')")

        assert page.evaluate(focused) == name
        assert not page.evaluate("() => document.activeElement.isOld")


@pytest.mark.slow
def test_a_hidden_tab_asks_nothing_and_catches_up(page, live):
    drawn = shape(page)
    # Counts how often the page's loop looks whether the tab is hidden: once per second.
    hide = "window.looks = 0; Object.defineProperty(document, 'hidden', {configurable: true, get: () => ++looks})"
    page.evaluate(hide)
    page.wait_for_function("() => looks >= 1")  # so no request is under way
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    evaluate(live)
    # two more, each of which would have asked
    page.wait_for_function("() => looks >= 3")

    assert asked == []

    page.evaluate("delete document.hidden")
    grown(page, drawn)


@pytest.mark.slow
def test_a_killed_run_is_dead_and_refuses_knobs(page, dashboard, train_beside):
    training = train_beside(dashboard.url, steps=100_000)
    training.until(dashboard.runs)
    uuid = training.run.path.name
    show(page, f"{dashboard.url}/run/{uuid}", ".state.in-progress")
    training.process.send_signal(signal.SIGKILL)
    training.process.wait(10)
    killed = time.time()

    for _ in range(2):
        page.wait_for_selector(".state.dead", timeout=15_000)

        def status():
            return dashboard.get(f"run/status/{uuid}")

        # in labml's words; the page may show it before a write that was on its way
        until(lambda: status()["run_status"]["status"] == "no response")
        assert killed - 5 < status()["last_updated_time"] <= killed
        with pytest.raises(RefusedError, match="this run is dead"):
            dashboard.change(training.run, "knobs", {"learning_rate_factor": 0.5})

        dashboard.receive(training.run)  # as --import does


def test_knobs_are_set_on_the_page(page, live, axe):
    page.wait_for_selector("#knobs")
    assert axe() == []
    assert "learning_rate_factor 1, masking_prob as scheduled" in page.inner_text(
        "main"
    )

    factor = "[name=learning_rate_factor]"
    rate = "[name=masking_prob]"
    page.fill(factor, "0.5")
    page.fill(rate, "0.3")
    page.click("#knobs button")
    page.wait_for_selector("text=learning_rate_factor 1 (requested: 0.5)")
    live.send()

    assert live.knobs == {"learning_rate_factor": 0.5, "masking_prob": 0.3}

    live.run.append_event({"event": "changed by hand", "step": 30, "after": live.knobs})
    live.send()
    appears(page, "text=learning_rate_factor 0.5, masking_prob 0.3")

    for place, value, said in (
        (factor, "99", "learning_rate_factor=99: it must be a number from"),
        (factor, "", "learning_rate_factor=: it must be a number from"),
        (factor, "0.5", "learning_rate_factor 0.5"),
        (rate, "none of these", "masking_prob=none of these: it must be"),
        (rate, "", "masking_prob 0.3 (requested: as scheduled)"),
    ):
        page.fill(place, value)
        with page.expect_response("**/knobs**"):  # one text is on the page already
            page.click("#knobs button")
        page.wait_for_selector(f"text={said}")


def test_a_run_that_ended_without_the_dashboard_is_not_called_dead(
    page, dashboard, make_run
):
    run = make_run()
    with run.locked():
        dashboard.receive(run)
        dashboard.end()
        run.save_status("completed")

    dashboard.start()
    page.goto(f"{dashboard.url}/runs")
    page.wait_for_selector(".state.completed", timeout=10_000)


def test_a_page_says_that_the_dashboard_does_not_answer(page, dashboard, make_run):
    run = make_run()
    show(page, dashboard.receive(run).page)
    dashboard.end(signal.SIGKILL)
    appears(page, "#absent")
    dashboard.start()
    appears(page, "#absent", state="detached")


def test_a_run_is_watched_from_its_first_point_to_its_last(
    page, dashboard, train_beside, tmp_path
):
    training = train_beside(dashboard.url)
    training.pause_after_evaluations(4)
    training.go_on()
    training.until(
        lambda: len(dashboard.series(training.run).get("loss.valid", ([], []))[0]) >= 3
    )
    training.process.send_signal(signal.SIGSTOP)  # however long the browser takes
    link = f'a[href="/run/{training.run.path.name}"]'

    show(page, f"{dashboard.url}/runs", link)  # listed without a click
    page.click(link)
    page.wait_for_selector(LINE)
    before = shape(page)
    training.go_on()
    output = training.check_end()

    assert output.count(f"dashboard {dashboard.url}/run/{training.run.path.name}") == 1
    assert "not on the dashboard" not in output

    page.wait_for_selector(".state.completed")
    grown(page, before)
    page.click("summary")

    assert "model.d_model" in page.inner_text("body")

    dashboard.restart(signal.SIGINT)
    show(page, f"{dashboard.url}/run/{training.run.path.name}")
    page.wait_for_selector("pre:has-text('loss.valid')")
    # this test makes the README's
    picture = Path(os.environ.get("FOLIO_SCREENSHOT", tmp_path / "dashboard.png"))
    page.screenshot(path=str(picture), full_page=True)

    assert picture.stat().st_size > 10_000
    assert page.outside == []


def test_html_in_a_log_runs_no_script(page, shared_dashboard, make_run):
    run = make_run()
    code = "document.title='broken in'"
    run.append_log(f'<img src=x onerror="{code}"><script>{code}</script>')
    delivery = shared_dashboard.receive(run)

    for path in ("", "?labml", "/logger"):
        show(page, f"{delivery.page}{path}", "text=a line for people")
        # the page would have asked for the missing picture by now
        page.wait_for_load_state("networkidle")

        assert page.title() != "broken in"
