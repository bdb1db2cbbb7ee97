"""A run's own page in a real browser."""

import secrets
from urllib.parse import urljoin

import pytest

from tests.board.conftest import LINE, WITHIN, evaluate, show


@pytest.fixture
def opened(page, shared_dashboard, make_run):
    """A completed run with stages, references and samples, and its open page."""
    run = make_run(n_rows=0)
    config = run.config()
    config["training.stages"][1]["masking_prob"] = 0.15
    config |= {"training.max_steps": 40, "training.learning_rate": 1.0}
    run.save_config(config)
    planned = {"low": 0.7, "loss": 0.9, "high": 1.1}
    curve = [planned | {"chars": chars} for chars in (1_500, 4_000, 8_000)]
    run.save_plan({"sha256": "", "curve": curve})
    run.save_about("mlm", "preset quick", ["training.learning_rate"])
    run.save_reference_lines({"uniform": 4.174, "unigram": 3.347, "counting": 1.179})

    for step in (10, 20, 30, 40):
        losses = {
            "loss.valid": 30 / step,
            "loss.train": 40 / step,
            "loss.valid_stderr": 0.1,
        }
        times = {"step": step, "chars": 100 * step, "seconds": step / 10}
        run.append_metrics({**times, **losses, "accuracy.valid": step / 100})
        run.append_log(f"step {step:>7,}  loss.valid 1.0")
        run.append_log(f"a \x1b[32m[b]\x1b[0mc\x1b[31m[x!{step // 10}]\x1b[0m")

    run.append_hardware({"step": 10, "time": 1.0, "cpu": 90.0, "cpu_of_run": 80.0})
    run.save_status("completed")
    show(page, shared_dashboard.receive(run).page)
    return page


def test_the_chart_shows_real_points_stages_references_and_values_at_the_pointer(
    opened,
):
    chart = opened.locator("figure").first
    # the last point of the plan is not reached yet
    assert chart.locator("circle").count() == 10

    texts = chart.locator("svg text").all_text_contents()
    labels = {"counting 1.179", "valid 0.750", "planned 0.900"}

    assert {"32 long, 30% masked", "64 long, 15% masked", *labels} <= {*texts}
    assert chart.locator(".reference").count() == 2  # uniform would squeeze the curves

    (boundary,) = chart.locator(".stage").all()
    second = chart.locator("circle").nth(1)  # the stage ends at half of the steps

    assert float(boundary.get_attribute("x1")) == pytest.approx(
        float(second.get_attribute("cx"))
    )

    second.hover()
    values = [
        "seconds of training 2",
        "train 2.000",
        "valid 1.500",
        "planned 0.900 at 1.5",
    ]

    assert chart.locator(".tip").inner_text().splitlines() == values

    chart.locator("> svg").focus()
    opened.keyboard.press("ArrowRight")

    assert chart.locator(".tip").inner_text().splitlines()[0] == "seconds of training 3"

    opened.select_option("#x", "chars")
    opened.check("#xlog")

    assert "1,000" in chart.locator("svg text").all_text_contents()
    # the first stage begins at 0, which has no logarithm
    assert "NaN" not in chart.inner_html()

    opened.reload()  # the address has the axis
    opened.wait_for_selector(LINE)

    assert opened.input_value("#x") == "chars"

    titles = opened.locator("figcaption > span:first-child").all_inner_texts()

    assert titles == [
        "Loss, nats per masked character",
        "accuracy.valid",
        "CPU, % used",
    ]


def saved(page, kind):
    """The text of the first chart as a file."""
    with page.expect_download() as download:
        page.click(f"button[aria-label='Save Loss as {kind}']")
    return download.value.path().read_text()


def test_figures_samples_keys_and_charts_saved_as_svg_and_csv(opened):
    figures = opened.locator(".figures > div").all_inner_texts()
    assert "below counting\n0.429" in [text.replace("\n\n", "\n") for text in figures]
    assert opened.locator(".sample").inner_text() == "a bcx4"
    assert opened.locator(".sample .right").all_inner_texts() == ["b"]

    opened.locator("#evaluation").press("Home")

    assert opened.locator(".sample s").all_inner_texts() == ["1"]
    assert opened.locator("output").inner_text() == "after step 10"

    keys = opened.locator("section:has-text('Keys, yours first') tbody").first

    assert keys.inner_text() == "training.learning_rate\t1"

    opened.click("summary")
    body = opened.inner_text("body")

    assert "training.stages" in body
    assert "masking.masking_prob" not in body  # all stages have their own

    lines = saved(opened, "CSV").splitlines()

    assert (
        lines[0]
        == 'series,seconds of training,"Loss, nats per masked character",low,high'
    )
    assert lines[1] == "train,1,4,,"
    assert "valid,1,3,2.9,3.1" in lines

    drawing = saved(opened, "SVG")

    assert "stroke: rgb(0, 114, 178)" in drawing
    assert ">Loss, nats per masked character</text>" in drawing


# Functions, because Playwright polls an expression with `eval`, which the page's policy forbids.
FIT = "() => [...document.querySelectorAll(':root, .table:has(.list)')].every((e) => e.scrollWidth <= e.clientWidth)"
APART = """() => [...document.querySelectorAll('figure > svg')].every((svg) => {
  const boxes = [...svg.querySelectorAll('text')].filter((t) => t.textContent).map((t) => t.getBoundingClientRect());
  const isOver = (a, b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
  return !boxes.some((a, i) => boxes.slice(i + 1).some((b) => isOver(a, b)));
})"""


def test_the_pages_are_accessible_in_light_and_dark_and_fit_windows_of_all_widths(
    opened, axe
):
    opened.set_viewport_size({"width": 400, "height": 800})
    own = opened.url
    # with a path
    ready_when = {
        own: LINE,
        "/runs": "tbody tr",
        "/compare": LINE,
        "/try": ".error:not(:empty)",
    }

    for path, ready in ready_when.items():
        opened.goto(urljoin(own, path))
        opened.wait_for_selector(ready, state="attached")
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            assert axe() == [], (path, scheme)

        for width in (2560, 1280, 400):  # the last one for the next page
            opened.set_viewport_size({"width": width, "height": 800})
            opened.wait_for_function(FIT, timeout=WITHIN)
            opened.wait_for_function(APART, timeout=WITHIN)


def test_a_prefix_leads_to_its_run_and_an_unknown_one_is_refused(
    page, shared_dashboard, make_run
):
    run = shared_dashboard.receive(make_run(f"0ddba111{secrets.token_hex(8)}"))
    shared_dashboard.receive(make_run(f"0ddba112{secrets.token_hex(8)}"))
    show(page, f"{shared_dashboard.url}/run/0ddba111")

    assert page.url == run.page

    for n, unknown in (("No", "feedface"), ("2", "0ddba11")):
        answer = page.goto(f"{shared_dashboard.url}/run/{unknown}")
        line = f"{n.lower()} runs of the dashboard begin with '{unknown}'\n"

        assert (answer.status, answer.text()) == (404, line)

        page.goto(f"{shared_dashboard.url}/try?run={unknown}")
        line = f"{n} evaluated runs begin with {unknown}: choose one."
        page.wait_for_selector(f"[role=alert]:text-is('{line}')")

        assert page.input_value("#run") == ""


@pytest.mark.slow
def test_labmls_page_refreshes_by_itself(page, live):
    page.click("nav >> text=labml's page")
    line = "svg#chart path.smoothed-line"
    page.wait_for_selector(line)
    before = page.locator(line).first.get_attribute("d")
    evaluate(live)
    changed = f"before => document.querySelector('{line}')?.getAttribute('d') != before"
    page.wait_for_function(changed, arg=before, timeout=20_000)
