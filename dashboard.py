"""labml's dashboard on an embedded database: watch runs, bring in old ones, turn the knobs of those that train.

python dashboard.py [--port 5005] [--db logs/dashboard.sqlite3]
python dashboard.py --import RUN        a run that the dashboard has missed, or all
python dashboard.py --set RUN learning_rate_factor=0.5 masking_prob=0.15

RUN: a folder, a uuid or its beginning, or `last`.
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from runs.delivery import Delivery, DeliveryError, RefusedError, ask, dashboard
from runs.find import all_runs, find_run
from runs.knobs import KnobError, knobs_of
from runs.run_folder import RunFolderError

ROOT = Path(__file__).parent
SECONDS_TO_ANSWER = 30.0  # an import sends a thousand rows at once


def main(arguments: list[str]) -> int:
    """Serve, import or set; returns the exit code."""
    parser = OneLineParser(description="labml's dashboard on an embedded database.")
    parser.add_argument("--port", type=int, help="on the loopback address (default: that of labml_app_url, or 5005)")
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="where the runs are")
    parser.add_argument("--db", type=Path, help="the database (default: dashboard.sqlite3 in the logs)")
    parser.add_argument("--import", dest="imported", metavar="RUN", help="bring a run, or all, to the dashboard")
    parser.add_argument("--set", dest="changed", metavar="RUN", help="turn the knobs of a run that trains")
    parser.add_argument("knobs", nargs="*", metavar="knob=value", help="with --set: learning_rate_factor, masking_prob")
    try:
        options = parser.parse_args(arguments)
        if options.port is None:
            options.port = urlsplit(dashboard() or "").port or 5005
        if not 0 <= options.port <= 65_535:
            raise ConfigError(f"--port {options.port} is no port: choose 1 to 65535")
        if bool(options.knobs) != (options.changed is not None):
            raise ConfigError("knobs are turned with --set RUN knob=value, such as learning_rate_factor=0.5")
        server = f"http://127.0.0.1:{options.port}"
        if options.imported is not None and options.changed is not None:
            raise ConfigError("--import and --set are two things: give one of them")
        if options.imported is not None:
            return bring(options.imported, options.logs, server)
        if options.changed is not None:
            return turn(options.changed, options.knobs, options.logs, server)
        return serve(options.db or options.logs / "dashboard.sqlite3", options.port)
    except (ConfigError, RunFolderError, KnobError, DeliveryError) as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130


def serve(database: Path, port: int) -> int:
    """Serve until Ctrl-C."""
    try:
        from board.server import ServerError
        from board.server import serve as run_server
    except ImportError as error:
        raise ConfigError(f"{error}: make dashboard installs what is missing (requirements-dashboard.txt)") from error
    try:
        run_server(database, port)
    except ServerError as error:
        raise ConfigError(str(error)) from error
    return 0


def bring(name: str, logs: Path, server: str) -> int:
    """Bring a run, or all, to the dashboard; what it has already is not sent again."""
    runs = all_runs(logs) if name == "all" else [find_run(name, logs)]
    failed = 0
    for run in runs:
        delivery = Delivery(run, server)
        try:
            while delivery.send(SECONDS_TO_ANSWER):
                pass
            print(f"{delivery.page}  ({delivery.rows:,} evaluations)", flush=True)
        except (RunFolderError, RefusedError) as error:
            print(f"left out: {run.path.name}: {error}", file=sys.stderr, flush=True)
            failed += 1
        except DeliveryError as error:
            raise ConfigError(
                f"no dashboard at {server} ({error}): make dashboard starts it; --port for another"
            ) from error
    return 1 if failed else 0


def turn(name: str, words: list[str], logs: Path, server: str) -> int:
    """Turn the knobs of a run that trains."""
    run = find_run(name, logs)
    values = dict(word.partition("=")[::2] for word in words)
    knobs_of(values, run.about()["rates"])  # a wrong one is refused before it is sent
    try:
        reply = ask(f"{server}/api/folio/runs/{run.path.name}/knobs", "PUT", values, SECONDS_TO_ANSWER)
    except DeliveryError as error:
        raise ConfigError(f"not changed, says {server}: {error}") from error
    wanted = ", ".join(f"{knob}={'none' if value is None else value}" for knob, value in reply["knobs"].items())
    print(f"asked run {run.path.name} for {wanted}; its log says when it has changed")
    return 0


if __name__ == "__main__":
    run_main(main)
