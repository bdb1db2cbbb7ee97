"""The page in a real browser, as a user sees it."""

import os
import signal
from pathlib import Path

from tests.board.conftest import LINE, Dashboard, grown, shape, show


def test_a_run_is_watched_from_its_first_point_to_its_last(page, dashboard: Dashboard, train_beside, tmp_path):
    training = train_beside(dashboard.url)
    training.pause_after_evaluations(4)
    training.go_on()
    training.until(lambda: len(dashboard.series(training.run).get("loss.valid", ([], []))[0]) >= 3)
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
    picture = Path(os.environ.get("FOLIO_SCREENSHOT", tmp_path / "dashboard.png"))  # this test makes the README's
    page.screenshot(path=str(picture), full_page=True)
    assert picture.stat().st_size > 10_000
    assert page.outside == []


def test_html_in_a_log_runs_no_script(page, shared_dashboard, make_run):
    run = make_run()
    run.append_log("<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>")
    delivery = shared_dashboard.receive(run)
    for path in ("", "?labml", "/logger"):
        show(page, f"{delivery.page}{path}", "text=a line for people")
        page.wait_for_load_state("networkidle")  # the page would have asked for the missing picture by now
        assert page.title() != "broken in"
