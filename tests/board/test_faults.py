"""Databases that are deleted or replaced while a dashboard uses them."""

import contextlib
import sqlite3

from tests.board.conftest import Dashboard

SECONDS_TO_NOTICE = 5


def test_a_deleted_database_is_created_again_and_runs_send_again(dashboard, make_run):
    run = make_run()
    with run.locked():
        delivery = dashboard.receive(run)
        dashboard.database.unlink()
        delivery.send(10)  # at once: the dashboard looks before it answers
        dashboard.says("was deleted or replaced")
        while delivery.send(10):
            pass

        assert dashboard.series(run)["loss.valid"] == ([10, 20, 30], [3.0, 1.5, 1.0])
        assert dashboard.listed(run)["name"] == "mlm, play"

    dashboard.restart()  # it is in the new file

    assert dashboard.listed(run)["name"] == "mlm, play"


def test_a_database_that_is_replaced_by_another_dashboards_is_served(
    dashboard, fork_server, tmp_path, make_run
):
    run = make_run()
    other = make_run()
    second = Dashboard(tmp_path / "other.sqlite3", fork_server).start()
    second.receive(other)
    second.end()
    dashboard.receive(run)
    second.database.rename(dashboard.database)
    dashboard.says("was deleted or replaced")

    assert list(dashboard.runs()) == [other.path.name]


def test_a_database_that_is_replaced_by_another_programs_stops_the_dashboard(
    dashboard, tmp_path
):
    other = tmp_path / "letters.sqlite3"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE letters (a TEXT)")

    content = other.rename(dashboard.database).read_bytes()

    assert dashboard.process.wait(SECONDS_TO_NOTICE) == 2

    dashboard.says("it is not a dashboard's database")

    assert dashboard.database.read_bytes() == content
