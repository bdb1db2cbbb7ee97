"""From a run's folder to the dashboard: everything, once, and whatever happens to the server."""

import base64
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from runs.delivery import Delivery, DeliveryError, Uploader, ask
from runs.run_folder import RunFolder
from tests.board.conftest import Dashboard
from tests.conftest import ROOT

UUID = "0123456789abcdef"


def shown(dashboard: Dashboard, path: str, body: dict | None = None) -> dict:
    """What the page would get."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{dashboard.url}/api/v1/{path}", data), timeout=10) as response:
        return json.load(response)


def series(dashboard: Dashboard, uuid: str = UUID) -> dict[str, tuple[list[float], list[float]]]:
    """Steps and values by name, as the page draws them."""
    found = shown(dashboard, f"metrics/{uuid}", {"get_all": True, "indices": None})["series"]
    decoded = {}
    for line in found:
        steps, values = (np.frombuffer(base64.b64decode(line[key]), np.float32) for key in ("step", "value"))
        decoded[line["name"]] = (steps.tolist(), values.tolist())
    return decoded


def deliver(run: RunFolder, dashboard: Dashboard) -> Delivery:
    delivery = Delivery(run, dashboard.url)
    while delivery.send(10):
        pass
    return delivery


def test_a_run_appears_in_the_list_with_its_name_configs_curves_and_log(dashboard, make_run):
    run = make_run(UUID, accuracy=0.5)
    deliver(run, dashboard)
    (listed,) = shown(dashboard, "runs/null")["runs"]
    assert (listed["run_uuid"], listed["name"], listed["comment"]) == (UUID, "mlm, play", "preset quick seed=1")
    assert listed["run_status"]["status"] == "in progress"
    configs = {config["key"]: config for config in shown(dashboard, f"run/{UUID}")["configs"]}
    assert configs["seed"]["value"] == 1
    assert configs["seed"]["is_explicitly_specified"]
    assert not configs["masking.masking_prob"]["is_explicitly_specified"]
    assert series(dashboard)["loss.valid"] == ([10, 20, 30], [3.0, 1.5, 1.0])
    assert "corpus" not in series(dashboard)
    log = shown(dashboard, f"logs/std_logger/{UUID}", {"page": -2})["pages"]
    assert "".join(log.values()) == "a line for people, with an é\n"


def test_nothing_is_delivered_twice(dashboard, make_run):
    run = make_run(UUID)
    first = deliver(run, dashboard)
    deliver(run, dashboard)  # from the beginning, as an import does
    run.append_metrics({"step": 40, "loss.valid": 0.5})
    assert not first.send(10)
    assert deliver(run, dashboard).rows == 4
    assert series(dashboard)["loss.valid"] == ([10, 20, 30, 40], [3.0, 1.5, 1.0, 0.5])


def test_rows_that_a_resumed_run_has_cut_off_are_gone_from_the_dashboard(dashboard, make_run):
    run = make_run(UUID, n_rows=5)
    deliver(run, dashboard)
    rows = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(rows[:2]))
    deliver(run, dashboard)
    assert series(dashboard)["loss.valid"][0] == [10, 20]


def test_a_restart_forgets_neither_knobs_nor_what_was_changed_on_the_page(dashboard, make_run):
    run = make_run(UUID, n_rows=5)
    delivery = deliver(run, dashboard)
    ask(f"{dashboard.url}/api/folio/runs/{UUID}/knobs", "PUT", {"learning_rate_factor": 0.5}, 10)
    shown(dashboard, f"run/{UUID}", {"name": "my name for it"})
    run.metrics_path.write_text(run.metrics_path.read_text().splitlines(keepends=True)[0])
    run.append_event({"event": "changed by hand", "step": 10, "after": {}})
    delivery = deliver(run, dashboard)
    assert delivery.knobs == {"learning_rate_factor": 0.5, "masking_prob": None}
    data = shown(dashboard, f"run/{UUID}")
    assert data["name"] == "my name for it"
    assert "changed by hand" in data["comment"]


def test_a_log_that_breaks_off_in_a_character_is_delivered_and_done(dashboard, make_run):
    run = make_run(UUID)
    with open(run.log_path, "ab") as file:
        file.write("no newline, and half an é".encode()[:-1])
    delivery = Delivery(run, dashboard.url)
    sent = 0
    while delivery.send(10):
        sent += 1
        assert sent < 5
    assert delivery.log == run.log_path.stat().st_size


def test_a_damaged_run_among_others_is_left_out_in_one_line(dashboard, make_run, tmp_path):
    for uuid, name, content in (
        ("aaaaaaaaaaaa", "status.json", "{"),
        ("bbbbbbbbbbbb", "config.yaml", ""),
        ("cccccccccccc", "metrics.jsonl", '{"step":\n'),
        ("not-a-uuid", "log.txt", ""),
    ):
        (make_run(uuid).path / name).write_text(content)
    make_run(UUID)
    words = ["--import", "all", "--port", str(dashboard.port), "--logs", str(tmp_path / "logs")]
    result = subprocess.run(
        [sys.executable, "dashboard.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert result.stderr.count("left out: ") == result.stderr.count("\n") == 4
    assert series(dashboard)["loss.valid"][0] == [10, 20, 30]


def test_what_was_shown_survives_a_restart_and_a_kill(dashboard, make_run):
    deliver(make_run(UUID), dashboard)
    for number in (signal.SIGKILL, signal.SIGINT):
        dashboard.end(number)
        dashboard.start()
        assert series(dashboard)["loss.valid"] == ([10, 20, 30], [3.0, 1.5, 1.0])


def test_it_needs_no_pytorch():
    """Which takes seconds to start, and memory that the training beside it may want."""
    program = "import sys, dashboard, board.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_ctrl_c_ends_it_cleanly_also_with_requests_under_way(dashboard):
    shown(dashboard, "runs/null")
    half = b"POST /api/folio/runs/0123456789 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    stalled = socket.create_connection(("127.0.0.1", dashboard.port))
    stalled.sendall(half)
    assert dashboard.end(signal.SIGINT, seconds=2 + 3) == 0  # within 2 s; 3 for a machine that is busy with other tests
    stalled.close()
    assert not any("Traceback" in line for line in dashboard.output)


def test_a_second_dashboard_on_the_same_port_says_so(dashboard, tmp_path):
    command = [sys.executable, "dashboard.py", "--port", str(dashboard.port), "--db", str(tmp_path / "other.sqlite3")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "is a dashboard running?" in result.stderr


def test_what_is_not_a_number_is_not_drawn_and_a_failed_run_says_why(dashboard, make_run):
    run = make_run(UUID)
    run.append_metrics({"step": 40, "loss.valid": float("nan"), "loss.train": float("inf")})
    run.save_status("crashed", "the loss is nan in training at step 40")
    deliver(run, dashboard)
    assert series(dashboard)["loss.valid"] == ([10, 20, 30], [3.0, 1.5, 1.0])
    (listed,) = shown(dashboard, "runs/null")["runs"]
    assert listed["run_status"]["status"] == "crashed"
    assert listed["comment"].startswith("failed: the loss is nan in training at step 40")


@pytest.mark.parametrize("which", [UUID[:6], "last", "all"])
def test_a_run_that_was_missed_is_brought_in_afterwards(dashboard, make_run, tmp_path, which):
    make_run(UUID)
    words = ["--import", which, "--port", str(dashboard.port), "--logs", str(tmp_path / "logs")]
    result = subprocess.run(
        [sys.executable, "dashboard.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert f"{dashboard.url}/run/{UUID}" in result.stdout
    assert series(dashboard)["loss.valid"][0] == [10, 20, 30]


def test_an_import_without_a_dashboard_says_how_to_start_one(make_run, tmp_path):
    make_run(UUID)
    words = ["--import", UUID, "--port", "1", "--logs", str(tmp_path / "logs")]
    result = subprocess.run(
        [sys.executable, "dashboard.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert "make dashboard starts it" in result.stderr
    assert result.stderr.count("\n") == 1


def test_two_runs_stream_fifty_thousand_points_each_and_none_is_lost(dashboard, make_run, browser):
    """While both stream: metrics.jsonl keeps every point, the page's series covers the range and ends at the end."""
    runs = [make_run(uuid, n_rows=0) for uuid in ("aaaaaaaaaaaa", "bbbbbbbbbbbb")]
    couriers = [Uploader(Delivery(run, dashboard.url), print) for run in runs]
    n = 50_000

    def stream(run: RunFolder, uploader: Uploader) -> None:
        uploader.start()
        for i in range(1, n + 1):
            run.append_metrics(
                {"step": i, "loss.valid": 1 + 1 / i, "loss.train": 1 + 2 / i, "learning_rate": 1 - i / n}
            )

    threads = [threading.Thread(target=stream, args=pair) for pair in zip(runs, couriers, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [uploader.end(120) for uploader in couriers] == [None, None]
    for run in runs:
        assert [row["step"] for row in run.metrics()] == list(range(1, n + 1))
        lines = series(dashboard, run.path.name)
        for name, last in (("loss.valid", 1 + 1 / n), ("loss.train", 1 + 2 / n), ("learning_rate", 0.0)):
            steps, values = lines[name]
            assert 100 < len(steps) <= 1_100
            assert steps == sorted(steps)
            assert steps[0] < 0.01 * n
            assert steps[-1] == n
            assert values[-1] == pytest.approx(last)
    page = browser.new_page()
    began = time.monotonic()
    page.goto(f"{dashboard.url}/run/aaaaaaaaaaaa")
    page.wait_for_selector("svg path.smoothed-line")
    assert time.monotonic() - began < 3


def test_a_server_of_another_kind_is_no_dashboard(ended_dashboard_url):
    with pytest.raises(DeliveryError):
        ask(f"{ended_dashboard_url}/api/folio/runs/{UUID}", "POST", {}, 1)


def test_knobs_are_turned_within_their_bounds_and_reach_the_run(dashboard, make_run, tmp_path):
    run = make_run(UUID)
    delivery = deliver(run, dashboard)
    assert delivery.knobs is None

    def turn(*knobs: str) -> subprocess.CompletedProcess:
        words = ["--set", UUID, *knobs, "--port", str(dashboard.port), "--logs", str(tmp_path / "logs")]
        return subprocess.run(
            [sys.executable, "dashboard.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
        )

    assert turn("learning_rate_factor=0.5").returncode == 0
    assert turn("masking_prob=0.3").returncode == 0  # what was turned before stays turned
    delivery.send(10)
    assert delivery.knobs == {"learning_rate_factor": 0.5, "masking_prob": 0.3}
    refused = turn("masking_prob=0.2")
    assert refused.returncode == 2
    assert "choose 0.15, 0.3, or none" in refused.stderr
    with pytest.raises(DeliveryError, match="at most 10"):  # the server trusts no client
        ask(f"{dashboard.url}/api/folio/runs/{UUID}/knobs", "PUT", {"learning_rate_factor": 100}, 10)
    run.save_status("completed")
    deliver(run, dashboard)
    assert "has ended (completed)" in turn("learning_rate_factor=2").stderr
