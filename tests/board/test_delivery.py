"""From a run's folder to the dashboard: everything arrives once, whatever happens to the server."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import dashboard as command
from runs.delivery import Delivery, RefusedError, Uploader
from runs.files import ROOT
from runs.schema import LOG, METRICS
from tests.board.conftest import evaluate, message

DRAWN = ([10, 20, 30], [3.0, 1.5, 1.0])  # loss.valid of `make_run`


@pytest.fixture
def run_command(shared_dashboard, tmp_path):
    """Calls dashboard.py for the shared dashboard and the test's own runs."""
    options = ["--port", str(shared_dashboard.port), "--logs", str(tmp_path / "logs")]
    return lambda words: command.main([*words, *options])


def test_a_run_is_listed_with_its_name_configs_curves_and_log(
    shared_dashboard, make_run
):
    run = make_run(accuracy=0.5)
    with run.locked():
        shared_dashboard.receive(run)
        entry = shared_dashboard.listed(run)

    assert (entry["name"], entry["comment"]) == ("mlm, play", "preset quick seed=1")
    assert entry["run_status"]["status"] == "in progress"

    configs = shared_dashboard.get(f"run/{run.path.name}")["configs"]
    explicit = [config for config in configs if config["is_explicitly_specified"]]

    assert [(config["key"], config["value"]) for config in explicit] == [("seed", 1)]

    series = shared_dashboard.series(run)

    assert series["loss.valid"] == DRAWN
    assert "corpus" not in series

    log = shared_dashboard.get(f"logs/std_logger/{run.path.name}", {"page": -2})[
        "pages"
    ]

    assert "".join(log.values()) == "a line for people, with an é\n"


def test_nothing_is_delivered_twice_and_rows_that_a_resumed_run_has_removed_disappear(
    shared_dashboard, make_run
):
    run = make_run()
    first = shared_dashboard.receive(run)
    shared_dashboard.receive(run)  # from the beginning, as an import does
    evaluate(first)

    assert not first.send(10)
    assert shared_dashboard.receive(run).n_evaluations() == 4
    assert shared_dashboard.series(run)["loss.valid"] == (
        [10, 20, 30, 40],
        [3.0, 1.5, 1.0, 0.5],
    )

    rows = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text("".join(rows[:2]))
    shared_dashboard.receive(run)

    assert shared_dashboard.series(run)["loss.valid"][0] == [10, 20]


def test_a_run_that_was_resumed_while_the_dashboard_was_away_is_read_anew(
    shared_dashboard, make_run
):
    """Its file may have grown beyond what the dashboard has, with other rows."""
    run = make_run()
    other = make_run(n_rows=5, seq_len=64)
    shared_dashboard.receive(run)
    run.metrics_path.write_bytes(other.metrics_path.read_bytes())
    os.utime(run.config_path, (0, 0))  # resuming writes it
    shared_dashboard.receive(run)

    assert shared_dashboard.series(run)["seq_len"] == ([10, 20, 30, 40, 50], [64.0] * 5)


def test_a_restart_keeps_the_knobs_and_what_was_changed_on_the_page(
    shared_dashboard, make_run
):
    run = make_run(n_rows=5)
    shared_dashboard.receive(run)
    uuid = run.path.name

    with run.locked():
        shared_dashboard.receive(run)
        shared_dashboard.change(run, "knobs", {"learning_rate_factor": 0.5})

    shared_dashboard.get(f"run/{uuid}", {"name": "my name for it"})
    run.metrics_path.write_text(
        run.metrics_path.read_text().splitlines(keepends=True)[0]
    )
    run.append_event({"event": "changed by hand", "step": 10, "after": {}})
    delivery = shared_dashboard.receive(run)

    assert delivery.knobs == {"learning_rate_factor": 0.5, "masking_prob": None}

    data = shared_dashboard.get(f"run/{uuid}")

    assert data["name"] == "my name for it"
    assert "changed by hand" in data["comment"]
    assert shared_dashboard.summary(run)["changes"] == "(changed by hand)"


def test_a_message_is_stored_as_a_whole_or_not_at_all(shared_dashboard, make_run):
    run = make_run(n_rows=0)
    shared_dashboard.receive(run)
    row = message({"step": 1, "loss.valid": 2.0})

    with pytest.raises(RefusedError, match="status is wrong"):
        shared_dashboard.post(run, row | {"status": {"status": "asleep"}})

    assert "loss.valid" not in shared_dashboard.series(run)
    assert shared_dashboard.post(run, row)["stored"][METRICS] > 0
    assert shared_dashboard.series(run)["loss.valid"] == ([1], [2.0])


@pytest.mark.parametrize(
    "wrong", [{"planned": "x"}, {"configs": {"training.stages": 5}}]
)
def test_what_a_page_draws_is_checked(shared_dashboard, make_run, wrong):
    run = make_run()
    about = run.about() | wrong

    with pytest.raises(RefusedError, match="about is wrong"):
        shared_dashboard.post(run, message({"step": 1}) | {"about": about})


def test_a_log_that_ends_within_a_character_is_delivered(shared_dashboard, make_run):
    run = make_run()
    with open(run.log_path, "ab") as file:
        file.write("no newline, and half an é".encode()[:-1])

    delivery = Delivery(run, shared_dashboard.url)

    assert not all(delivery.send(10) for _ in range(5))
    assert delivery.stored[LOG] == run.log_path.stat().st_size


def test_damaged_runs_are_left_out_of_an_import_with_one_line_each(
    shared_dashboard, make_run, run_command, capsys
):
    make_run().status_path.write_text("{")
    make_run().config_path.write_text("")
    make_run().metrics_path.write_text('{"step":\n')
    make_run("not-a-uuid")

    run = make_run()

    assert run_command(["--import", "all"]) == 1

    errors = capsys.readouterr().err

    assert errors.count("left out: ") == errors.count("\n") == 4
    assert shared_dashboard.series(run)["loss.valid"] == DRAWN


def test_the_dashboard_does_not_import_pytorch():
    """PyTorch takes seconds to start, and memory that training may need."""
    program = "import sys, dashboard, board.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_ctrl_c_stops_it_cleanly_while_a_request_is_open(dashboard):
    dashboard.get("runs/null")
    half = b"POST /api/folio/runs/0123456789 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", dashboard.port)) as stalled:
        stalled.sendall(half)
        assert dashboard.end(signal.SIGINT, seconds=10) == 0

    assert not any("Traceback" in line for line in dashboard.output)


def test_a_second_dashboard_on_the_same_port_is_refused(run_command, refusal):
    assert "is a dashboard running?" in refusal(run_command)


def test_values_that_are_not_finite_are_not_drawn_and_a_failed_run_says_why(
    shared_dashboard, make_run
):
    run = make_run()
    run.append_metrics(
        {"step": 40, "loss.valid": float("nan"), "loss.train": float("inf")}
    )
    run.save_status("crashed", "the loss is nan in training at step 40")
    shared_dashboard.receive(run)

    assert shared_dashboard.series(run)["loss.valid"] == DRAWN

    entry = shared_dashboard.listed(run)

    assert entry["run_status"]["status"] == "crashed"
    assert entry["comment"].startswith("failed: the loss is nan in training at step 40")


@pytest.mark.parametrize("which", ["a prefix", "last", "all"])
def test_a_run_that_was_missed_is_imported(
    shared_dashboard, make_run, run_command, capsys, which
):
    run = make_run()
    assert (
        run_command(["--import", run.path.name[:6] if which == "a prefix" else which])
        == 0
    )
    assert f"{shared_dashboard.url}/run/{run.path.name}" in capsys.readouterr().out
    assert shared_dashboard.series(run)["loss.valid"] == DRAWN


@pytest.mark.parametrize(
    "words", ["--import last", "--set last learning_rate_factor=2"]
)
def test_without_a_dashboard_the_command_says_how_to_start_one(
    make_run, tmp_path, refusal, words
):
    make_run()
    line = refusal(
        command.main, *words.split(), "--port", 1, "--logs", tmp_path / "logs"
    )

    assert "no dashboard at http://127.0.0.1:1 (Connection refused)" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--set last learning_rate_factor=2", "no run 'last'"),
        ("--import all", "no runs yet"),
        ("--set last", "knobs need --set RUN knob=value"),
        ("learning_rate_factor=2", "knobs need --set RUN knob=value"),
        ("--import last --set last learning_rate_factor=2", "not allowed with"),
        ("--db other.sqlite3 --import last", "not allowed with"),
        ("--set last learning_rate_factor=2 --db other.sqlite3", "not allowed with"),
        ("--port 65536", "65536 is out of range"),
        ("--db /dev/null/database", "/dev/null/database"),
    ],
)
def test_a_wrong_command_line_is_refused_with_one_line(
    tmp_path, refusal, words, message
):
    assert message in refusal(
        command.main, "--port", "0", "--logs", tmp_path, *words.split()
    )


def test_two_runs_stream_many_points_each_and_none_is_lost(shared_dashboard, make_run):
    """Meanwhile metrics.jsonl keeps every point; the page's series covers the range and ends at the
    last point."""
    runs = [make_run(n_rows=0) for _ in range(2)]
    n = 4_000

    def stream(run):
        uploader = Uploader(Delivery(run, shared_dashboard.url), print)
        uploader.start()
        for i in range(1, n + 1):
            losses = {"loss.valid": 1 + 1 / i, "loss.train": 1 + 2 / i}
            run.append_metrics({"step": i, "seconds": i / n, **losses})

        return uploader.end(120)

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(stream, runs)) == [None, None]

    for run in runs:
        rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
        assert [row["step"] for row in rows] == list(range(1, n + 1))

        for name in ("loss.valid", "loss.train"):
            steps, values = shared_dashboard.series(run)[name]
            assert 100 < len(steps) <= 1_100
            assert steps == sorted(steps)
            assert steps[0] < 0.01 * n
            assert steps[-1] == n
            assert values[-1] == pytest.approx(rows[-1][name])


def test_knobs_are_set_within_their_bounds_and_reach_the_run(
    shared_dashboard, make_run, run_command, refusal
):
    run = make_run()
    uuid = run.path.name
    with run.locked():
        delivery = shared_dashboard.receive(run)
        assert delivery.knobs is None

        # the first stays set
        for knob in ("learning_rate_factor=0.5", "masking_prob=0.3"):
            assert run_command(["--set", uuid, knob]) == 0

        delivery.send(10)
        assert delivery.knobs == {"learning_rate_factor": 0.5, "masking_prob": 0.3}
        assert "from 0.05 to 1" in refusal(
            run_command, "--set", uuid, "masking_prob=1.5"
        )
        # the server does not trust its clients
        with pytest.raises(RefusedError, match=r"from 0\.01 to 10"):
            shared_dashboard.change(run, "knobs", {"learning_rate_factor": 100})

    run.save_status("completed")
    shared_dashboard.receive(run)

    assert "has ended (completed)" in refusal(
        run_command, "--set", uuid, "learning_rate_factor=2"
    )


def test_a_knob_that_was_turned_on_another_dashboard_stays(
    shared_dashboard, make_run, run_command
):
    run = make_run()
    after = {"learning_rate_factor": 0.5}
    run.append_event({"event": "changed by hand", "step": 30, "after": after})

    with run.locked():
        delivery = shared_dashboard.receive(run)
        assert run_command(["--set", run.path.name, "masking_prob=0.3"]) == 0

        delivery.send(10)

    assert delivery.knobs == {"learning_rate_factor": 0.5, "masking_prob": 0.3}


def test_a_message_about_hiding_a_run_changes_nothing_else(shared_dashboard, make_run):
    run = shared_dashboard.receive(make_run()).run
    shared_dashboard.change(run, "hidden", {"hidden": True, "about": 3})
    summary = shared_dashboard.summary(run)

    assert summary["hidden"]
    assert summary["preset"] == "quick"
