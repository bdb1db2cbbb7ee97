"""A run's page in a real browser."""

import pytest

from tests.board.conftest import LINE, WITHIN, Dashboard


@pytest.fixture
def opened(page, shared_dashboard: Dashboard, make_run):
    """A run with references and two overridden keys, and its open page."""
    run = make_run(n_rows=0)
    for step in (10, 20, 30):
        run.append_metrics({"step": step, "loss.valid": 30 / step, "loss.train": 40 / step, "accuracy.valid": 0.5})
    stages = run.config()["training.stages"]
    run.save_config({"masking.masking_prob": 0.15, "seed": 1, "training.learning_rate": 1, "training.stages": stages})
    run.save_about("mlm", "preset quick", ["training.learning_rate", "training.stages"])
    run.save_reference_lines({"uniform": 4.174, "unigram": 3.347, "counting": 1.179})
    run.save_status("completed")
    shared_dashboard.receive(run)
    page.goto(f"{shared_dashboard.url}/run/{run.path.name}")
    page.wait_for_selector(LINE)
    return page


def test_the_chart_has_titles_whole_ticks_reference_losses_and_two_colors(opened):
    chart = opened.locator("svg#chart").first
    drawn = chart.locator(".smoothed-line").evaluate_all("lines => lines.map(line => line.getAttribute('stroke'))")
    assert sorted(drawn) == ["#0072B2", "#888", "#888", "#E69F00"]
    assert chart.locator(".reference").all_text_contents() == ["counting 1.179", "unigram 3.347"]
    assert chart.locator(".axis-title").all_text_contents() == ["step", "loss in nats per masked character"]
    ticks = chart.locator(".tick text").all_text_contents()
    assert ticks
    assert not [tick for tick in ticks if tick.endswith("0") and "." in tick]
    points = "line => line.getAttribute('d').split(/[MLC]/).at(-1).split(',').at(-1)"
    smoothed, unsmoothed = (chart.locator(f".{kind}-line").nth(1) for kind in ("smoothed", "unsmoothed"))
    assert smoothed.evaluate(points) == unsmoothed.evaluate(points)


def test_overridden_keys_come_first_with_their_full_names(opened):
    names = opened.locator(".configs .key").all_inner_texts()
    assert [name.strip("- ") for name in names] == ["training.learning_rate", "training.stages"]
    assert opened.locator(".configs .key").evaluate_all("keys => keys.every(key => key.scrollWidth <= key.clientWidth)")
    opened.click(".configs")
    opened.wait_for_url("**/configs")
    listed = [name.strip("- ") for name in opened.locator(".configs .key").all_inner_texts()]
    assert listed[:2] == ["training.learning_rate", "training.stages"]
    assert {"seed", "masking.masking_prob"} <= set(listed[2:])


def test_buttons_that_would_do_nothing_and_labmls_site_are_gone(opened, shared_dashboard: Dashboard):
    text = opened.inner_text("body").lower()
    assert not [word for word in ("process", "computer", "comparison") if word in text]
    opened.goto(f"{shared_dashboard.url}/runs")
    opened.click(".fa-bars")
    opened.wait_for_selector("text=Compare")
    assert "sign out" not in opened.inner_text("body").lower()
    assert "documentation" not in opened.inner_text("body").lower()
    opened.reload()  # closes the menu
    opened.click("#folio-compare")
    opened.wait_for_url("**/compare")


def test_the_use_of_the_hardware_has_a_chart_of_its_own(page, live):
    run, delivery = live
    usage = {"cpu": 90.0, "cpu_of_run": 80.0, "memory": 20.0, "memory_of_run": 5.0}
    for step in (10, 20):
        run.append_hardware({"step": step, "time": 1.0, **usage})
    delivery.send()
    page.wait_for_selector("text=used, in percent", timeout=WITHIN)  # the chart appears on the open page
    assert lines_per_chart(page) == [1, 4]
    run.append_hardware({"step": 30, "time": 2.0, **usage, "gpu": 50.0})  # a series that is new
    delivery.send()
    page.reload()
    page.locator("svg#chart").nth(1).wait_for()
    assert lines_per_chart(page) == [1, 5]


def lines_per_chart(page) -> list[int]:
    return [chart.locator(".smoothed-line").count() for chart in page.locator("svg#chart").all()]


def test_what_a_user_has_chosen_stays_when_series_are_added(shared_dashboard: Dashboard, make_run):
    run = make_run(**{"loss.train": 2.0})
    delivery = shared_dashboard.receive(run)
    preferences = f"metrics/preferences/{run.path.name}"
    shared_dashboard.get(preferences, {"series_preferences": [1, -1]})  # only loss.train
    run.append_metrics({"step": 40, "loss.valid": 0.5, "loss.train": 1.0, "accuracy.valid": 0.9})
    run.append_hardware({"step": 40, "cpu": 90.0})
    delivery.send()
    names = sorted(shared_dashboard.series(run))
    assert names == ["accuracy.valid", "hardware.cpu", "loss.train", "loss.valid"]
    assert shared_dashboard.get(preferences)["series_preferences"] == [-1, -1, 1, -1]


def test_reference_losses_that_come_late_begin_at_the_first_row(shared_dashboard: Dashboard, make_run):
    run = make_run()
    delivery = shared_dashboard.receive(run)
    run.save_reference_lines({"counting": 1.179})
    run.append_metrics({"step": 40, "loss.valid": 0.5})
    delivery.send()
    assert shared_dashboard.series(run)["reference.counting"] == ([10, 20, 30, 40], pytest.approx([1.179] * 4))
