"""The page in a real browser, as a user sees it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from board.page import VENDORED
from tests.board.conftest import Dashboard
from tests.board.test_delivery import deliver, series
from tests.board.test_never_in_the_way import trained_beside  # noqa: F401, a fixture
from tests.conftest import needed


@pytest.fixture
def page(browser, dashboard: Dashboard) -> Any:
    """A page that may load nothing from elsewhere."""
    needed(all(path.is_file() for _, _, path in VENDORED), "needs the page's npm packages: make .venv/vendored")
    opened = browser.new_page(viewport={"width": 1100, "height": 900})
    opened.outside = []

    def only_here(route: Any) -> None:
        if route.request.url.startswith(dashboard.url):
            route.continue_()
        else:
            opened.outside.append(route.request.url)
            route.abort()

    opened.route("**/*", only_here)
    return opened


def n_shown(dashboard: Dashboard, uuid: str) -> int:
    """How many points the dashboard has of a run."""
    return len(series(dashboard, uuid).get("loss.valid", ([], []))[0])


def test_a_run_is_watched_from_its_first_point_to_its_last(page, dashboard: Dashboard, trained_beside, tmp_path):  # noqa: F811
    training = trained_beside(dashboard.url, max_steps=400)
    training.until_evaluated()
    training.until(lambda: n_shown(dashboard, training.run.path.name) >= 3)
    training.process.send_signal(signal.SIGSTOP)  # however long the browser takes
    link = f'a.list-item[href="/run/{training.run.path.name}"]'

    page.goto(f"{dashboard.url}/runs")
    page.wait_for_selector(link)  # listed, without a click
    page.click(link)
    page.wait_for_selector("svg path.smoothed-line")
    shown = page.locator(".sparkline-list-item .title").all_inner_texts()
    assert shown == ["loss.train", "loss.valid"]

    def drawn() -> str:
        return page.locator("svg path.smoothed-line").first.get_attribute("d") or ""

    before = drawn()
    training.process.send_signal(signal.SIGCONT)
    training.check_end()
    page.click(".btn-refresh") if page.locator(".btn-refresh").count() else page.reload()
    page.wait_for_function(
        "before => document.querySelector('svg path.smoothed-line')?.getAttribute('d') != before", arg=before
    )

    page.goto(f"{dashboard.url}/run/{training.run.path.name}/configs")
    page.wait_for_selector("text=model.d_model")
    configs = page.inner_text("body")
    assert "training.stages" in configs
    assert '[{"seq_len": 32, "until": 1.0}]' in configs

    dashboard.end()
    dashboard.start()
    page.goto(f"{dashboard.url}{'/run/' + training.run.path.name}")
    page.wait_for_selector("svg path.smoothed-line")
    assert "COMPLETED" in page.inner_text("body").upper()
    page.wait_for_selector(".terminal-card pre:has-text('loss.valid')")
    picture = Path(os.environ.get("FOLIO_SCREENSHOT", tmp_path / "dashboard.png"))  # the README's is made by this test
    page.screenshot(path=str(picture), full_page=True)
    assert picture.stat().st_size > 10_000
    assert page.outside == []


def test_a_log_that_holds_html_runs_no_script(page, dashboard: Dashboard, make_run):
    run = make_run("0123456789abcdef")
    run.append_log("<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>")
    deliver(run, dashboard)
    page.goto(f"{dashboard.url}/run/0123456789abcdef/logger")
    page.wait_for_selector("text=a line for people")
    page.wait_for_load_state("networkidle")  # the picture that is not there was asked for
    assert page.title() != "broken in"
