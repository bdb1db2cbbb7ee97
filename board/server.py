"""labml-app's server on SQLite, with an interface of its own for Folio's runs."""

import contextlib
import importlib
import json
import logging
import os
import re
import socket
import sqlite3
import tempfile
import warnings
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from board.guard import Guard
from board.page import load_page
from board.runs import MessageError, Runs
from board.store import IndexDriver, ModelDriver, Store
from runs.knobs import KnobError

HOST = "127.0.0.1"  # this machine only: the page knows no passwords
SECONDS_TO_END = 0  # for requests that are under way: runs send again what was not answered
UUID = re.compile(r"[0-9a-f]{10,64}")


class ServerError(RuntimeError):
    """The server cannot start; the message is one line for the user."""


def serve(path: Path, port: int) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM. `path` is the database. Raises ServerError."""
    listening = listen(port)
    store = open_store(path)
    port = listening.getsockname()[1]
    guarded = application(store, port)
    loaded = "works offline" if guarded.page.is_offline else "styles and d3 come from their CDNs: npm was not there"
    print(f"dashboard http://{HOST}:{port}/runs   ({path}; {loaded}; Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(guarded, access_log=False, log_level="critical", timeout_graceful_shutdown=SECONDS_TO_END)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has ended in good order, and hands the signal on
        pass
    finally:
        store.close()


def listen(port: int) -> socket.socket:
    """A socket on the loopback address; port 0 takes a free one. Raises ServerError."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(128)  # from here on who comes is let in, if not answered at once
    except (OSError, OverflowError) as error:
        listening.close()
        raise ServerError(f"cannot listen on port {port} ({error}): is a dashboard running? try --port") from error
    return listening


def open_store(path: Path) -> Store:
    """The database, made where it is not there yet. Raises ServerError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return Store(path)
    except (OSError, sqlite3.Error) as error:
        raise ServerError(f"cannot use {path} as the database ({error}): give another with --db") from error


def application(store: Store, port: int) -> Guard:
    """labml-app behind its guard. Once a process: labml-app is made when it is imported."""
    # Its settings are read at import, and so is its database opened: `init_mongo_db` is replaced in between.
    os.environ |= {"LABML_APP_SERVER_IP": HOST, "LABML_APP_SERVER_PORT": str(port)}
    importlib.import_module("labml_app.logger").logger.setLevel(logging.CRITICAL + 1)  # it logs every request
    warnings.simplefilter("ignore", RuntimeWarning)  # it takes the means of series that are still empty
    database: Any = importlib.import_module("labml_app.db")
    database.init_mongo_db = lambda: _init(database, store)
    with contextlib.chdir(tempfile.gettempdir()):  # it looks for a git repository, and fails on one without commits
        module = importlib.import_module("labml_app.flask_app")
    app: FastAPI = module.app
    add_interface(app, Runs(store))
    return Guard(app, load_page(Path(module.STATIC_PATH)))


def _init(database: Any, store: Store) -> None:
    """What labml-app does with MongoDB, and one thing more: its handler reads the project's token from the query,
    where no client puts it. With this alias runs without a token are the local user's, and listed at once."""
    from labml_db import Index, Model

    Model.set_db_drivers([ModelDriver(model, store) for model in database.models])
    Index.set_db_drivers([IndexDriver(index, store) for index in database.indexes])
    for token in (database.settings.FLOAT_PROJECT_TOKEN, database.settings.SAMPLES_PROJECT_TOKEN):
        database.project.create_project(token, token)
    user = database.user.get_or_create_user("local", is_local_user=True)
    database.project.ProjectIndex.set("", user.projects[0])


def _refuse_constant(name: str) -> None:
    raise MessageError(f"{name} is no JSON")


def add_interface(app: FastAPI, runs: Runs) -> None:
    """The routes that Folio's runs and `dashboard.py` use."""

    async def tell(request: Request, uuid: str) -> JSONResponse:
        """A run tells what it has; the answer says what the dashboard has of it, and how its knobs are wanted."""
        return await answered(request, uuid, lambda message: runs.tell(request, uuid, message))

    async def turn(request: Request, uuid: str) -> JSONResponse:
        """Someone wants a run's knobs turned."""
        return await answered(request, uuid, lambda message: runs.turn(uuid, message))

    async def answered(request: Request, uuid: str, handle: Any) -> JSONResponse:
        try:
            message = json.loads(await request.body(), parse_constant=_refuse_constant)
            if not isinstance(message, dict) or not UUID.fullmatch(uuid):
                raise MessageError("not a message of a run")
            return JSONResponse(handle(message))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, MessageError, KnobError) as error:
            return JSONResponse({"error": str(error)}, 400)

    app.add_api_route("/api/folio/runs/{uuid}", tell, methods=["POST"])
    app.add_api_route("/api/folio/runs/{uuid}/knobs", turn, methods=["PUT"])
    # labml-app's own way to serve files reads any file of the machine, and its documentation loads from elsewhere.
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "").startswith("/api/")]
