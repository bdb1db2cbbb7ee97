"""Folio's pages and labml's dashboard: watch runs, import earlier ones, turn the knobs of a run
that trains.

python dashboard.py [--port 5005] [--db logs/dashboard.sqlite3]
python dashboard.py --import RUN        deliver a run that the dashboard has missed, or all
python dashboard.py --set RUN learning_rate_factor=0.5 masking_prob=0.15

RUN: a folder, a uuid or the beginning of one, a name, or `last`.
"""

import sys
from argparse import Namespace
from pathlib import Path
from urllib.parse import urlsplit

from configs.command_line.program import run_main
from configs.command_line.scripts import logs_parser, number, run_script
from configs.keys import ConfigError
from runs.delivery import Delivery, DeliveryError, RefusedError, ask, dashboard_address
from runs.find import all_runs, find_run
from runs.knobs import knobs_of
from runs.schema import RunFolderError

SECONDS_TO_ANSWER = 30.0  # an import sends large messages


def main(arguments: list[str]) -> int:
    parser = logs_parser(__doc__)
    parser.add_argument(
        "--port",
        type=number(int, 0, 65_535),
        help="its port (default: labml_app_url's, or 5005)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--db",
        type=Path,
        help="the database (default: dashboard.sqlite3 in the folder of the runs)",
    )
    action.add_argument(
        "--import",
        dest="imported",
        metavar="RUN",
        help="deliver a run, or all, to the dashboard",
    )
    action.add_argument(
        "--set",
        dest="changed",
        metavar="RUN",
        help="turn the knobs of a run that trains",
    )
    parser.add_argument(
        "knobs",
        nargs="*",
        metavar="knob=value",
        help="with --set: learning_rate_factor, masking_prob",
    )
    return run_script(parser, arguments, answer, "requirements-dashboard.txt")


def answer(options: Namespace) -> int:
    port = options.port
    if port is None:
        port = urlsplit(dashboard_address() or "").port or 5005
    if bool(options.knobs) != (options.changed is not None):
        raise ConfigError(
            "knobs need --set RUN knob=value, such as --set last learning_rate_factor=0.5"
        )

    server = f"http://127.0.0.1:{port}"
    try:
        if options.imported is not None:
            return import_runs(options.imported, options.logs, server)
        if options.changed is not None:
            return set_knobs(options.changed, options.knobs, options.logs, server)
    except DeliveryError as error:
        start = "start one with make dashboard, or choose another with --port"
        raise ConfigError(f"no dashboard at {server} ({error}): {start}") from error

    from board.server import serve

    serve(options.db or options.logs / "dashboard.sqlite3", port)
    return 0


def import_runs(name: str, logs: Path, server: str) -> int:
    """Deliver a run, or all, to the dashboard. It does not store twice what it has already."""
    code = 0
    runs = all_runs(logs) if name == "all" else []
    for run in runs or [find_run(name, logs)]:  # `find_run` raises if there are none
        delivery = Delivery(run, server)
        try:
            while delivery.send(SECONDS_TO_ANSWER):
                pass
            n_rows = delivery.n_evaluations()
            print(
                f"{delivery.page}  ({n_rows:,} evaluation{'s' * (n_rows != 1)})",
                flush=True,
            )
        except (RunFolderError, RefusedError) as error:
            print(f"left out: {run.path.name}: {error}", file=sys.stderr, flush=True)
            code = 1

    return code


def set_knobs(name: str, words: list[str], logs: Path, server: str) -> int:
    """Ask a run that trains for other values of its knobs."""
    run = find_run(name, logs)
    values = {}
    for word in words:
        key, _, value = word.partition("=")
        values[key] = value

    knobs_of(values)  # reject wrong values before they are sent
    url = f"{server}/api/folio/runs/{run.path.name}/knobs"
    try:
        knobs = ask(url, "PUT", values, SECONDS_TO_ANSWER, {"knobs": dict})["knobs"]
    except RefusedError as error:
        raise ConfigError(f"not changed: {error}") from error

    wanted = [
        f"{knob}={'none' if value is None else value}" for knob, value in knobs.items()
    ]
    print(
        f"asked run {run.path.name} for {', '.join(wanted)}; its log reports the change"
    )
    return 0


if __name__ == "__main__":
    run_main(main)
