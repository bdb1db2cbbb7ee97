"""A training process beside a real server that fails: training continues, ends in time, and reports
it."""

import re
import resource
import signal

import pytest

from tests.board.conftest import EVALUATIONS
from tests.conftest import slow


def lines_about(output, words):
    return [line for line in output.splitlines() if words in line]


def test_an_absent_dashboard_is_one_line_at_the_start(dashboard, train_beside):
    dashboard.end()
    output = train_beside(dashboard.url).check_end()
    (line,) = lines_about(output, "no dashboard at")

    assert "start one with make dashboard" in line
    assert not lines_about(output, "not on the dashboard")


@pytest.mark.parametrize("number", [signal.SIGKILL, *slow(signal.SIGSTOP)])
def test_a_dashboard_that_fails_during_training_is_reported_once(
    dashboard, train_beside, number
):
    training = train_beside(dashboard.url)
    training.pause_after_evaluations()
    dashboard.send(number)
    training.go_on()
    output = training.check_end()

    assert len(lines_about(output, "does not take this run")) == 1

    (line,) = lines_about(output, "not on the dashboard")

    assert re.search(r"not on the dashboard: \d+ evaluations \(", line)
    assert (
        f"python dashboard.py --import {training.run.path} --port {dashboard.port}"
        in line
    )


def test_a_dashboard_that_answers_errors_is_reported(dashboard, train_beside):
    """The server cannot write any more, as on a full disk, so every answer from then on is a 500."""
    training = train_beside(dashboard.url)
    training.pause_after_evaluations()
    resource.prlimit(dashboard.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    training.go_on()
    output = training.check_end()
    (line,) = lines_about(output, "does not take this run")

    assert "it answers, but not as Folio's dashboard does: status 500" in line
    assert len(lines_about(output, "not on the dashboard")) == 1


def test_a_dashboard_that_comes_back_receives_what_it_missed(dashboard, train_beside):
    training = train_beside(dashboard.url, steps=400)
    training.pause_after_evaluations()
    dashboard.end(signal.SIGKILL)
    training.go_on()
    training.until(
        lambda: any("does not take this run" in line for line in training.lines)
    )
    # however long the dashboard takes to start
    training.process.send_signal(signal.SIGSTOP)
    dashboard.start()
    training.go_on()
    output = training.check_end()

    assert not lines_about(output, "not on the dashboard")

    steps, values = dashboard.series(training.run)["loss.valid"]
    rows = training.run.metrics()

    assert (steps[0], steps[-1]) == (rows[0]["step"], rows[-1]["step"])
    assert values[-1] == pytest.approx(rows[-1]["loss.valid"])
    # labml-app averages some that are close together
    assert len(steps) > EVALUATIONS / 2
