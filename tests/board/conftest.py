"""Real dashboards, real browsers, and trainings that report to a dashboard."""

import base64
import json
import os
import re
import secrets
import shutil
import signal
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from board.page import IS_OFFLINE, MODULES
from runs.delivery import STORED, Delivery, ask
from runs.run_folder import RunFolder
from runs.schema import DELIVERED, METRICS
from tests.conftest import config_file, dotted, needed, only_run, until
from tests.fork_server import ForkServer, Program

LINE = "figure svg path.line"
WITHIN = 5_000  # milliseconds in which an open page shows a change
SECONDS_TO_EXIT = 15
EVALUATIONS = 12
KEYS = {
    "training.evaluations": EVALUATIONS,
    "training.chars_per_step": 256,
    "training.stages": [{"until": 1.0, "seq_len": 32}],
}


def message(row, start=0):
    """A message with one row, which begins at byte `start` of metrics.jsonl."""
    text = json.dumps(row) + "\n"
    nothing = {"from": 0, "to": 0, "text": ""}
    piece = {"from": start, "to": start + len(text), "text": text}
    return {"pieces": dict.fromkeys(DELIVERED, nothing) | {METRICS: piece}}


@dataclass
class Dashboard:
    """A server process that can be stopped, killed, frozen and started again on the same port and
    database."""

    database: Path
    fork_server: ForkServer = field(repr=False)
    port: int = 0
    process: Program | None = field(default=None, repr=False)
    output: list[str] = field(default_factory=list)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = ["dashboard.py", "--port", str(self.port), "--db", str(self.database)]
        self.process = self.fork_server.start(command, merged=True)
        line = self.process.stdout.readline()
        match = re.match(r"dashboard http://127\.0\.0\.1:(\d+)/runs ", line)

        assert match, line + self.process.stdout.read()

        self.port = int(match[1])
        # else the pipe would fill up and stop the server
        target = self.output.extend
        threading.Thread(target=target, args=[self.process.stdout], daemon=True).start()
        return self

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGINT, seconds=10):
        """Send a signal and wait for the end. Returns the exit code."""
        self.send(number)
        return self.process.wait(seconds)

    def says(self, words):
        """Wait until a line of its output has some words."""
        until(lambda: any(words in line for line in self.output), 5)

    def restart(self, number=signal.SIGKILL):
        self.end(number)
        self.start()

    def get(self, path, body=None):
        """The answer of labml-app to a request of the page."""
        content = body if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", content)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def change(self, run, what, message):
        """Set the knobs of a run, or hide it, as Folio's pages do."""
        ask(f"{self.url}/api/folio/runs/{run.path.name}/{what}", "PUT", message, 10, {})

    def post(self, run, message):
        """The answer to a message of a run."""
        return ask(
            f"{self.url}/api/folio/runs/{run.path.name}", "POST", message, 10, STORED
        )

    def summary(self, run):
        """The run as Folio's pages list it."""
        runs = ask(f"{self.url}/api/folio/runs", "GET", {}, 10, {"runs": list})["runs"]
        (entry,) = (entry for entry in runs if entry["uuid"] == run.path.name)
        return entry

    def runs(self):
        """labml's list of runs by uuid."""
        return {entry["run_uuid"]: entry for entry in self.get("runs/null")["runs"]}

    def listed(self, run):
        """The run's entry in labml's list of runs."""
        return self.runs()[run.path.name]

    def series(self, run):
        """Steps and values by name, as labml's page draws them."""
        decoded = {}
        content = self.get(
            f"metrics/{run.path.name}", {"get_all": True, "indices": None}
        )
        for line in content["series"]:
            steps = np.frombuffer(base64.b64decode(line["step"]), np.float32)
            values = np.frombuffer(base64.b64decode(line["value"]), np.float32)
            decoded[line["name"]] = (steps.tolist(), values.tolist())

        return decoded

    def receive(self, run):
        """Deliver the whole run."""
        delivery = Delivery(run, self.url)
        while delivery.send(10):
            pass

        return delivery


@pytest.fixture
def dashboard(tmp_path, fork_server):
    """A dashboard for one test, which may stop or break it."""
    started = Dashboard(
        tmp_path / "dashboard" / "dashboard.sqlite3", fork_server
    ).start()
    yield started
    started.send(signal.SIGCONT)
    started.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def shared_dashboard(tmp_path_factory, fork_server):
    """A dashboard for tests that add runs of their own and change nothing else."""
    folder = tmp_path_factory.mktemp("dashboard")
    started = Dashboard(folder / "runs.sqlite3", fork_server).start()
    yield started
    started.end(signal.SIGKILL)


@pytest.fixture
def make_run(tmp_path):
    """Makes a run's folder as training leaves it, without training. Each has its own uuid."""

    def make(uuid=None, n_rows=3, **row):
        run = RunFolder.create(
            tmp_path / "logs" / "mlm" / (uuid or secrets.token_hex(8))
        )
        run.save_about("mlm", "preset quick seed=1", ["seed"])
        stages = [
            {"until": 0.5, "seq_len": 32, "masking_prob": 0.3},
            {"until": 1.0, "seq_len": 64},
        ]
        run.save_config(
            {"seed": 1, "masking.masking_prob": 0.15, "training.stages": stages}
        )
        run.save_corpus("play", "0" * 64)
        run.save_status("in progress")

        for i in range(1, n_rows + 1):
            times = {"step": 10 * i, "seconds": float(i), "chars": 100 * i}
            run.append_metrics(
                {**times, "corpus": "play", "loss.valid": 3.0 / i, **row}
            )

        run.append_log("a line for people, with an é")
        return run

    return make


class Training:
    """A run of experiment.py that reports to an address."""

    def __init__(self, fork_server, folder, corpus, url, steps):
        self.logs = folder / "logs"
        config = config_file(
            folder, KEYS | {"data.corpus": corpus, "training.max_steps": steps}
        )
        environment = {"labml_app_url": f"{url}/api/v1/default"}
        self.process = fork_server.start(
            ["experiment.py", "--config", config], environment, merged=True
        )
        self.lines = []
        output = [self.process.stdout]
        self.reader = threading.Thread(
            target=self.lines.extend, args=output, daemon=True
        )
        self.reader.start()

    @property
    def run(self):
        return only_run(self.logs)

    def until(self, condition):
        def is_met():
            assert self.process.poll() is None, "".join(self.lines)
            return condition()

        until(is_met, 90)

    def pause_after_evaluations(self, times=3):
        """Stop the process after some evaluations, however fast it is and however long the test
        takes."""
        self.until(
            lambda: (
                any(self.logs.glob("mlm/*/metrics.jsonl"))
                and len(self.run.metrics()) >= times
            )
        )
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def check_end(self):
        """Wait for the end. Returns the output. The run is complete, and the end came in time."""
        assert self.process.wait(120) == 0, "".join(self.lines)

        ended = time.time()
        self.reader.join(10)

        assert len(self.run.metrics()) == EVALUATIONS
        assert self.run.status()["status"] == "completed"
        # The last weights are written at the end of training. Curves and delivery come after them.
        assert (
            ended - (self.run.checkpoints / "last.safetensors").stat().st_mtime
            < SECONDS_TO_EXIT
        )

        return "".join(self.lines)


@pytest.fixture
def train_beside(fork_server, tmp_path, corpus_file):
    """Starts a training process that reports to a dashboard's address."""
    started = []

    def start(url, steps=120):
        started.append(Training(fork_server, tmp_path, corpus_file, url, steps))
        return started[-1]

    yield start
    for training in started:
        training.process.kill()
        training.process.wait(10)


@pytest.fixture(scope="session")
def browser():
    """A real browser."""
    path = (
        shutil.which("chromium")
        or shutil.which("google-chrome")
        or shutil.which("chrome")
    )
    needed(path, "needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    options = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-gpu",
        "--disable-sync",
        "--no-first-run",
    ]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # Chromium refuses its sandbox to root

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=options)
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A page that may load nothing except from this machine."""
    needed(IS_OFFLINE, "needs the page's npm packages: make .venv/vendored")
    opened = browser.new_page(viewport={"width": 1100, "height": 900})
    opened.outside = []

    def only_here(route):
        if route.request.url.startswith("http://127.0.0.1:"):
            route.continue_()
        else:
            opened.outside.append(route.request.url)
            route.abort()

    opened.route("**/*", only_here)
    opened.on("console", lambda line: print("console:", line.text))
    opened.on("pageerror", lambda error: print("page:", error))
    yield opened

    try:
        # pytest shows it if the test has failed
        print(opened.url, opened.locator("body").inner_text(), sep="\n")
    finally:
        opened.close()


def show(page, address, ready=LINE):
    """Open an address, and wait for an element of its page."""
    page.goto(address)
    page.wait_for_selector(ready)


SHAPE = f"document.querySelector('{LINE}')?.getAttribute('d') ?? ''"


def shape(page):
    """The first curve of a page; empty if there is none."""
    return page.evaluate(f"() => {SHAPE}")


def grown(page, before):
    """Wait until the chart has changed. Returns its new shape."""
    page.wait_for_function(f"before => ({SHAPE}) != before", arg=before, timeout=WITHIN)
    return shape(page)


def appears(page, selector, **state):
    """Wait until an open page shows an element, in time."""
    page.wait_for_selector(selector, timeout=WITHIN, **state)


def evaluate(delivery, step=40, loss=0.5):
    """One more evaluation of a run, which is delivered."""
    delivery.run.append_metrics(
        {"step": step, "seconds": 0.1 * step, "loss.valid": loss}
    )
    delivery.send()


def change_config(run, **keys):
    """Change keys of a run's config, with `__` in place of the dot."""
    run.save_config(run.config() | dotted(keys))


@pytest.fixture
def axe(page):
    """Checks the open page with axe-core; returns its serious faults."""
    script = MODULES / "axe-core" / "axe.min.js"
    needed(script.is_file(), "needs axe-core: make .venv/vendored")

    def serious_faults():
        # a script element would break the page's policy
        page.evaluate(script.read_text())
        faults = page.evaluate("async () => (await axe.run()).violations")
        return [fault for fault in faults if fault["impact"] in ("serious", "critical")]

    return serious_faults


@pytest.fixture
def live(page, shared_dashboard, make_run):
    """The delivery of a run that trains; `page` shows the run."""
    run = make_run()
    with run.locked():
        delivery = shared_dashboard.receive(run)
        show(page, delivery.page)
        yield delivery
