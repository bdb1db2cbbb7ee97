"""labml-app's server on SQLite, with routes for Folio's runs."""

import contextlib
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
from labml_app import db
from labml_app.analyses.preferences import Preferences
from labml_app.logger import logger
from labml_db import Index, Model
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from board.database_file import StoreError
from board.guard import Guard
from board.labml_messages import check_message
from board.page import load_page
from board.revisions import Revisions
from board.run_records import RunRecords
from board.store import IndexDriver, ModelDriver, Store
from runs.errors import InputError

MAX_BODY = 8 * 2**20  # bytes; a larger body gets 413. Most messages of a run have less than a quarter of this
SECONDS_PER_LOOK = 2  # at the database, which may be deleted or replaced
HOST = "127.0.0.1"  # this machine only, because the page has no passwords


def serve(path: Path, port: int) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM. Raises InputError if the server cannot start or go on.

    `path` is the database, which is created if it does not exist. Port 0 takes a free one.
    """
    try:
        listening = socket.create_server((HOST, port), backlog=128)  # from now on clients wait instead of failing
    except OSError as error:
        reason = f"{os.strerror(error.errno or 0)}; is a dashboard running?"
        raise InputError(f"cannot use port {port} ({reason}): choose another --port") from error
    try:
        store = Store(path)
    except (OSError, sqlite3.Error, StoreError) as error:
        raise InputError(f"cannot use {path} as the database ({error}): choose another --db") from error
    app, restart = application(store)
    trouble: list[str] = []

    async def watch_file() -> None:
        try:
            if not store.reopened():
                return
            restart()
        except (StoreError, sqlite3.Error, OSError) as error:
            trouble.append(f"stopped: {path} was deleted or replaced, and cannot be used again ({error})")
            server.should_exit = True
        else:
            print(f"{path} was deleted or replaced: runs in progress send again, --import all adds others", flush=True)

    files = "works offline" if app.page.is_offline else "styles and d3 come from CDNs (make dashboard gets them)"
    address = f"http://{HOST}:{listening.getsockname()[1]}/runs"
    print(f"dashboard {address}   ({path}; {files}; Ctrl-C stops it)", flush=True)
    # No time to finish open requests after Ctrl-C: runs send again what was not answered.
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="critical",
        timeout_graceful_shutdown=0,
        callback_notify=watch_file,
        timeout_notify=SECONDS_PER_LOOK,
    )
    server = uvicorn.Server(config)
    with contextlib.closing(store), contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats it after it has stopped
        server.run(sockets=[listening])
    if trouble:
        raise InputError(f"{trouble[0]}: choose another --db")


def application(store: Store) -> tuple[Guard, Callable[[], None]]:
    """labml-app behind its guard, and a function to call when the store was opened again. Only once per process."""
    logger.setLevel(100)  # above all levels: it logs each request
    warnings.simplefilter("ignore", RuntimeWarning)  # labml-app takes means of empty series
    db.init_mongo_db = lambda: connect(store)  # the import calls it
    with contextlib.chdir("/"):  # labml-app looks for a git repository and fails if it has no commits
        from labml_app.flask_app import STATIC_PATH, app
    app.user_middleware.clear()  # it allows another site, and answers exceptions with a traceback
    app.middleware("http")(check_message)
    revisions = Revisions()
    records = RunRecords(store, revisions)
    add_interface(app, store, records, revisions)

    def restart() -> None:
        fill()
        records.restart()
        revisions.restart()

    return Guard(RequestBodyLimitMiddleware(app, MAX_BODY), load_page(Path(STATIC_PATH)), revisions), restart


def connect(store: Store) -> None:
    """Replaces labml-app's connection to MongoDB."""
    Model.set_db_drivers([ModelDriver(model, store) for model in db.models])
    Index.set_db_drivers([IndexDriver(index, store) for index in db.indexes])
    merged = db.run.get_merged_status_data  # knows only labml's own statuses
    db.run.get_merged_status_data = lambda uuids: (
        merged(uuids) if len(uuids) > 1 else db.run.get_status(uuids[0]).get_data()
    )
    smoothed = Preferences.defaults()
    Preferences.defaults = classmethod(lambda cls: smoothed | {"smooth_value": 0.0, "focus_smoothed": False})
    db.user.User.generate_session_token = lambda self, token: "local"  # it would store one per refresh of a page
    fill()


def fill() -> None:
    """Add the projects and the user that labml-app needs, if the database does not have them. Clients send no token in
    the query, where labml-app reads it, so the empty token becomes an alias of the local user's project."""
    for token in (db.settings.FLOAT_PROJECT_TOKEN, db.settings.SAMPLES_PROJECT_TOKEN):
        db.project.create_project(token, token)
    user = db.user.get_or_create_user("local", is_local_user=True)
    db.project.ProjectIndex.set("", user.projects[0])


def add_interface(app: FastAPI, store: Store, records: RunRecords, revisions: Revisions) -> None:
    """Add the routes for Folio's runs, the page's script and `dashboard.py`; remove the unsafe ones of labml-app."""
    handlers = {"POST": records.receive, "PUT": records.set_knobs}

    @app.post("/api/folio/runs/{uuid}")
    @app.put("/api/folio/runs/{uuid}/knobs")
    async def answer(request: Request, uuid: str) -> JSONResponse:
        try:
            message = json.loads(await request.body(), parse_constant=str)  # NaN, which is not JSON, as text
            if not isinstance(message, dict) or not re.fullmatch("[0-9a-f]{10,64}", uuid):
                raise ValueError("not a message of a run")
            with store.transaction():
                return JSONResponse(handlers[request.method](uuid, message))
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": str(error)}, 400)

    @app.get("/api/folio/revisions/{page}")
    async def revision(page: str) -> dict[str, str]:
        with store.transaction():
            records.notice_dead()
        return {"revision": revisions.of(page)}

    @app.get("/api/folio/runs/{uuid}/knobs")
    async def knobs(uuid: str) -> dict[str, Any]:
        return records.knobs(uuid)

    @app.get("/api/folio/runs")
    async def runs() -> dict[str, Any]:
        return {"runs": records.summaries()}

    # labml-app's route for files serves any file of the machine, and its API documentation loads scripts from a CDN.
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "").startswith("/api/")]
