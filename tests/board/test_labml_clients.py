"""Scripts that use plain labml, without Folio, appear on the dashboard; what would break its page
is refused."""

import itertools
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from board.labml_messages import MAX_SERIES
from runs.delivery import RefusedError
from tests.board.conftest import show
from tests.board.test_attacks import ask, get

SCRIPT = """
from labml import experiment, tracker

with experiment.record(name="plain", comment="{comment}"{argument}):
    for step in range(1, 6):
        tracker.save(step, {{"loss.train": 1 / step}})
"""


@pytest.mark.slow
def test_scripts_that_use_plain_labml_appear(page, shared_dashboard, tmp_path):
    page.goto(f"{shared_dashboard.url}/runs?labml")
    url = shared_dashboard.url
    # As an argument, or in the environment, which names no other dashboard: the script's argument
    # and its environment.
    arguments = {"app_url": f', app_url="{url}/api/v1/default"', "labml_app_url": ""}

    def run(comment):
        folder = tmp_path / comment
        folder.mkdir()
        environment = os.environ | {"HOME": str(folder), "BROWSER": "true"}
        del environment["labml_app_url"]
        if comment == "labml_app_url":
            environment["labml_app_url"] = url

        script = SCRIPT.format(comment=comment, argument=arguments[comment])
        command = [sys.executable, "-c", script]
        subprocess.run(command, cwd=folder, env=environment, timeout=120, check=True)

    # labml's clients and its server wait for seconds
    with ThreadPoolExecutor() as threads:
        list(threads.map(run, arguments))

    addresses = []
    for uuid, entry in shared_dashboard.runs().items():
        if entry["comment"] in arguments:
            assert entry["run_status"]["status"] == "completed"
            addresses.append(f"/run/{uuid}")

    assert len(addresses) == len(arguments)

    for address in addresses:
        page.wait_for_selector(f'a.list-item[href="{address}"]', timeout=20_000)

    for address in addresses:  # of labml's page
        show(page, url + address, "svg#chart path.smoothed-line")


def posted(dashboard, path, content):
    """The status of the answer to a message of labml's clients or of its page."""
    return ask(
        dashboard, get(f"/api/v1/{path}", method="POST", body=json.dumps(content))
    )[0]


WRONG_MESSAGES = [
    {"name": 5},
    {"configs": 5},
    {"favourite_configs": 5},
    {"favorite_configs": 5},
    {"repo_remotes": 5},
    {"stdout": 5},
    {"comment": ["a"]},
    {"tags": [1]},
    {"configs": {"seed": {"name": 1, "computed": 1}}},
    {"status": {"status": "asleep"}},
    {"track": {"loss": 5}},
    {"track": {"loss": {"step": [1, 2], "value": [1.0]}}},
    {"track": {"loss": {"step": ["a"], "value": [1.0]}}},
    {"track": {"loss": {"step": [], "value": []}}},
    {"track": {"loss": {"step": [math.nan] * 1_100, "value": [1.0] * 1_100}}},
    {"track": {"loss": {"step": [1], "value": [1.7e308]}}},
    [5],
    5,
]


def test_messages_that_would_break_the_page_are_refused(
    page, shared_dashboard, make_run
):
    run = make_run()
    shared_dashboard.receive(run)
    uuid = run.path.name
    paths = (f"default/track?run_uuid={uuid}", f"run/{uuid}", f"session/{uuid}")

    for message, path in itertools.product(WRONG_MESSAGES, paths):
        assert posted(shared_dashboard, path, message) == 400, message

    show(page, f"{shared_dashboard.url}/runs?labml", f'a.list-item[href="/run/{uuid}"]')


def test_a_run_keeps_a_bounded_number_of_series(shared_dashboard, make_run):
    names = [f"series {i}" for i in range(300)]
    uuid = "a" * 16
    path = f"default/track?run_uuid={uuid}&labml_version=0.5.3"

    def track(some):
        series = {name: {"step": [1], "value": [1.0]} for name in some}
        return posted(shared_dashboard, path, {"track": series})

    with ThreadPoolExecutor() as threads:  # labml-app answers after three seconds
        assert list(threads.map(track, (names[:150], names[150:]))) == [200, 200]

    listed = shared_dashboard.get(
        f"metrics/{uuid}", {"get_all": True, "indices": None}
    )["series"]

    assert len(listed) == MAX_SERIES

    with pytest.raises(RefusedError, match=f"more than {MAX_SERIES} series"):
        shared_dashboard.receive(make_run(**dict.fromkeys(names, 1.0)))
