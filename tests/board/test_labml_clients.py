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
from tests.board.conftest import Dashboard, show
from tests.board.test_attacks import ask, get

SCRIPT = """
from labml import experiment, tracker

with experiment.record(name="plain", comment="{comment}"{argument}):
    for step in range(1, 6):
        tracker.save(step, {{"loss.train": 1 / step}})
"""


def test_scripts_that_use_plain_labml_appear(page, shared_dashboard: Dashboard, tmp_path):
    page.goto(f"{shared_dashboard.url}/runs?labml")
    url = shared_dashboard.url
    # As an argument, or in the environment, which names no other dashboard: the script's argument
    # and its environment.
    ways = {
        "app_url": (f', app_url="{url}/api/v1/default"', {}),
        "labml_app_url": ("", {"labml_app_url": url}),
    }
    others = {name: value for name, value in os.environ.items() if name != "labml_app_url"}

    def run(comment: str) -> None:
        folder, (argument, environment) = tmp_path / comment, ways[comment]
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT.format(comment=comment, argument=argument))
        environment = {**others, "HOME": str(folder), "BROWSER": "true", **environment}
        command = [sys.executable, "train.py"]
        finished = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr

    with ThreadPoolExecutor() as threads:  # labml's clients and its server wait for seconds
        list(threads.map(run, ways))
    found = {entry["comment"]: entry for entry in shared_dashboard.get("runs/null")["runs"]}
    for comment in ways:
        assert found[comment]["run_status"]["status"] == "completed"
        page.wait_for_selector(
            f'a.list-item[href="/run/{found[comment]["run_uuid"]}"]', timeout=20_000
        )
    for comment in ways:
        # Leads to labml's page.
        show(
            page,
            f"{shared_dashboard.url}/run/{found[comment]['run_uuid']}",
            "svg#chart path.smoothed-line",
        )


def posted(dashboard: Dashboard, path: str, content: object) -> int:
    """The status of the answer to a message of labml's clients or of its page."""
    return ask(dashboard, get(f"/api/v1/{path}", method="POST", body=json.dumps(content)))[0]


WRONG_MESSAGES = [
    *(
        {key: 5}
        for key in (
            "name",
            "configs",
            "favourite_configs",
            "favorite_configs",
            "repo_remotes",
            "stdout",
        )
    ),
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
    page, shared_dashboard: Dashboard, make_run
):
    run = make_run()
    shared_dashboard.receive(run)
    paths = (
        f"default/track?run_uuid={run.path.name}",
        f"run/{run.path.name}",
        f"session/{run.path.name}",
    )
    for message, path in itertools.product(WRONG_MESSAGES, paths):
        assert posted(shared_dashboard, path, message) == 400, message
    show(page, f"{shared_dashboard.url}/runs?labml", f'a.list-item[href="/run/{run.path.name}"]')


def test_a_run_keeps_a_bounded_number_of_series(shared_dashboard: Dashboard, make_run):
    names, uuid = [f"series {i}" for i in range(300)], "a" * 16

    def track(some: list[str]) -> int:
        content = {"track": {name: {"step": [1], "value": [1.0]} for name in some}}
        return posted(
            shared_dashboard, f"default/track?run_uuid={uuid}&labml_version=0.5.3", content
        )

    with ThreadPoolExecutor() as threads:  # labml-app answers after three seconds
        assert list(threads.map(track, (names[:150], names[150:]))) == [200, 200]
    listed = shared_dashboard.get(f"metrics/{uuid}", {"get_all": True, "indices": None})["series"]
    assert len(listed) == MAX_SERIES
    run = make_run(**dict.fromkeys(names, 1.0))
    with pytest.raises(Exception, match=f"more than {MAX_SERIES} series"):
        shared_dashboard.receive(run)
