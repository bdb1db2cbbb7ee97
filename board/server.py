"""labml-app's server on SQLite, with routes for Folio's runs."""

import contextlib
import importlib
import json
import os
import re
import socket
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from board.guard import Guard
from board.page import load_page
from board.run_records import MessageError, RunRecords
from board.store import IndexDriver, ModelDriver, Store
from runs.knobs import KnobError

HOST = "127.0.0.1"  # this machine only, because the page has no passwords
SECONDS_TO_END = 0  # that open requests may take after Ctrl-C; runs send again what was not answered
UUID = re.compile(r"[0-9a-f]{10,64}")


class ServerError(RuntimeError):
    """The server cannot start. The message is one line for the user."""


def serve(path: Path, port: int) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM. Raises ServerError.

    `path` is the database, which is created if it does not exist. Port 0 takes a free one.
    """
    try:
        listening = socket.create_server((HOST, port), backlog=128)  # from now on clients wait instead of failing
    except OSError as error:
        reason = f"{os.strerror(error.errno or 0)}; is a dashboard running?"
        raise ServerError(f"cannot use port {port} ({reason}): choose another --port") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = Store(path)
    except (OSError, sqlite3.Error) as error:
        raise ServerError(f"cannot use {path} as the database ({error}): choose another --db") from error
    port = listening.getsockname()[1]
    app = application(store, port)
    files = "works offline" if app.page.is_offline else "npm is not installed: styles and d3 come from CDNs"
    print(f"dashboard http://{HOST}:{port}/runs   ({path}; {files}; Ctrl-C stops it)", flush=True)
    config = uvicorn.Config(app, access_log=False, log_level="critical", timeout_graceful_shutdown=SECONDS_TO_END)
    with contextlib.closing(store), contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats it after it has stopped
        uvicorn.Server(config).run(sockets=[listening])


def application(store: Store, port: int) -> Guard:
    """labml-app behind its guard. Only once per process: importing labml-app creates it."""
    # The import reads these settings and opens the database, so `init_mongo_db` is replaced before the last import.
    os.environ |= {"LABML_APP_SERVER_IP": HOST, "LABML_APP_SERVER_PORT": str(port)}
    importlib.import_module("labml_app.logger").logger.setLevel(100)  # above all levels: it logs each request
    warnings.simplefilter("ignore", RuntimeWarning)  # labml-app takes means of empty series
    database: Any = importlib.import_module("labml_app.db")
    database.init_mongo_db = lambda: _connect(database, store)
    with contextlib.chdir("/"):  # labml-app looks for a git repository and fails if it has no commits
        labml_app = importlib.import_module("labml_app.flask_app")
    add_interface(labml_app.app, store)
    return Guard(labml_app.app, load_page(Path(labml_app.STATIC_PATH)))


def _connect(database: Any, store: Store) -> None:
    """Replaces labml-app's connection to MongoDB, and makes the empty token an alias of the local user's project.

    labml-app reads a run's token from the query, where no client puts it; the alias lists runs without a token at once.
    """
    from labml_db import Index, Model

    Model.set_db_drivers([ModelDriver(model, store) for model in database.models])
    Index.set_db_drivers([IndexDriver(index, store) for index in database.indexes])
    for token in (database.settings.FLOAT_PROJECT_TOKEN, database.settings.SAMPLES_PROJECT_TOKEN):
        database.project.create_project(token, token)
    user = database.user.get_or_create_user("local", is_local_user=True)
    database.project.ProjectIndex.set("", user.projects[0])


def add_interface(app: FastAPI, store: Store) -> None:
    """Add the routes for Folio's runs and for `dashboard.py`, and remove the unsafe ones of labml-app."""
    records = RunRecords(store)

    def add(path: str, method: str, handle: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        async def answer(request: Request, uuid: str) -> JSONResponse:
            try:
                message = json.loads(await request.body(), parse_constant=_refuse_constant)
                if not isinstance(message, dict) or not UUID.fullmatch(uuid):
                    raise MessageError("not a message of a run")
                with store.transaction():
                    return JSONResponse(handle(uuid, message))
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, MessageError, KnobError) as error:
                return JSONResponse({"error": str(error)}, 400)

        app.add_api_route(path, answer, methods=[method])

    add("/api/folio/runs/{uuid}", "POST", records.receive)
    add("/api/folio/runs/{uuid}/knobs", "PUT", records.set_knobs)
    # labml-app's route for files serves any file of the machine, and its API documentation loads scripts from a CDN.
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "").startswith("/api/")]


def _refuse_constant(name: str) -> None:
    raise MessageError(f"{name} is not JSON")
