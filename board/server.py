"""labml-app's server on SQLite, with routes for Folio's runs."""

import contextlib
import json
import os
import re
import socket
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from labml_app import db
from labml_app.handlers import update_run
from labml_app.logger import logger
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from board.labml_database import connect, fill
from board.labml_messages import check_message
from board.page import IS_OFFLINE, add_pages
from board.predictors import BusyError, Predictors
from board.run_records import RunRecords, UnknownRunError
from board.store import Store, StoreError
from board.trials import trials
from runs.errors import InputError

# bytes; a larger body gets 413. Most messages of a run have less than a quarter of this
MAX_BODY = 8 * 2**20
SECONDS_FOR_HEADERS = 10  # of a request, from the connection or from the last answer
SECONDS_PER_LOOK = 2  # at the database, which may be deleted or replaced
# labml-app raises them, too
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)
HOST = "127.0.0.1"  # this machine only, because the page has no passwords
THIS_MACHINE = {HOST, "localhost", "[::1]"}


def serve(path: Path, port: int) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM. Raises InputError if the server cannot start or
    go on.

    `path` is the database, which is created if it does not exist. Port 0 takes a free one.
    """
    try:
        # from now on clients wait instead of failing
        listening = socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        reason = f"{os.strerror(error.errno or 0)}; is a dashboard running?"
        raise InputError(
            f"cannot use port {port} ({reason}): choose another --port"
        ) from error

    try:
        with (
            contextlib.closing(Store(path)) as store,
            contextlib.closing(Predictors()) as predictors,
        ):
            app, watch_file = application(store, predictors)
            files = "styles and d3 come from CDNs (make dashboard gets them)"
            if IS_OFFLINE:
                files = "works offline"
            address = f"http://{HOST}:{listening.getsockname()[1]}/runs"
            print(
                f"dashboard {address}   ({path}; {files}; Ctrl-C stops it)", flush=True
            )
            config = uvicorn.Config(
                RequestBodyLimitMiddleware(app, MAX_BODY),
                http=Impatient,
                ws="none",
                lifespan="off",
                access_log=False,
                log_level="critical",
                timeout_keep_alive=SECONDS_FOR_HEADERS,
                timeout_graceful_shutdown=0,  # runs send again what was not answered
                callback_notify=watch_file,
                timeout_notify=SECONDS_PER_LOOK,
            )
            with contextlib.suppress(
                KeyboardInterrupt
            ):  # uvicorn repeats it after it has stopped
                uvicorn.Server(config).run(sockets=[listening])
    except StoreError as error:
        raise InputError(
            f"cannot use {path} as the database ({error}): choose another --db"
        ) from error


class Impatient(H11Protocol):
    """Closes connections whose headers do not arrive in time. uvicorn's own limit begins with the
    first answer, and ends with the first byte of the next request."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            SECONDS_FOR_HEADERS, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()  # whole headers end the time


def refusal(request: Request) -> str | None:
    """Why a request is refused, if it is: its Host is not this machine (an attacker's name may
    resolve to 127.0.0.1), or it comes from another site's page."""
    headers = request.headers
    hosts = [host.lower() for host in headers.getlist("host")]

    if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0]) not in THIS_MACHINE:
        return "this dashboard is for localhost only"
    is_foreign = any(
        origin.lower() != f"http://{hosts[0]}" for origin in headers.getlist("origin")
    )
    if is_interface(request) and "cross-site" in headers.getlist("sec-fetch-site"):
        is_foreign = True
    return "another site's page may not use this dashboard" if is_foreign else None


def is_interface(request: Request) -> bool:
    """Whether a request is one of a script, in place of a page."""
    return request.scope["path"].startswith("/api/")


def application(
    store: Store, predictors: Predictors
) -> tuple[FastAPI, Callable[[], Coroutine[None, None, None]]]:
    """labml-app with Folio's interface and pages, and a function that opens the store again if its
    file was deleted or replaced. Only once per process."""
    logger.setLevel(100)  # above all levels: it logs each request
    # labml-app takes means of empty series
    warnings.simplefilter("ignore", RuntimeWarning)
    db.init_mongo_db = lambda: connect(store)  # the import calls it

    # labml-app looks for a git repository and fails if it has no commits
    with contextlib.chdir("/"):
        from labml_app.flask_app import STATIC_PATH, app

    keep_only_the_interface(app)
    # labml's own clients may use the plain address of the dashboard
    app.post("/track")(update_run)
    records = RunRecords(store)
    add_interface(app, store, records, predictors)
    add_pages(app, records, Path(STATIC_PATH))

    async def watch_file() -> None:
        if store.reopened():
            fill()
            records.restart()
            hint = "runs in progress send again, --import all adds others"
            print(f"{store.path} was deleted or replaced: {hint}", flush=True)

    @app.middleware("http")
    async def check(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        reason = refusal(request)
        if reason is not None:
            return PlainTextResponse(f"{reason}\n", 403)
        await watch_file()  # before a request meets the old file
        try:
            with store.transaction():
                records.notice_dead()  # whichever page asks
            await check_message(request)
            return await answer(request)
        except UnknownRunError as error:
            if is_interface(request):
                return JSONResponse({"error": str(error)}, 404)
            return PlainTextResponse(f"{error}\n", 404)
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            return JSONResponse({"error": "the body is not JSON"}, 400)
        except BusyError as error:
            return JSONResponse({"error": str(error)}, 503)
        except UNREADABLE as error:
            return JSONResponse({"error": str(error)}, 400)

    return app, watch_file


def keep_only_the_interface(app: FastAPI) -> None:
    """Remove labml-app's middleware, which allows another site and answers exceptions with a
    traceback, and all routes but its interface: that for files serves any file of the machine, and
    its API documentation loads scripts from a CDN."""
    app.user_middleware.clear()
    routes = app.router.routes
    routes[:] = [
        route for route in routes if getattr(route, "path", "").startswith("/api/")
    ]


def add_interface(
    app: FastAPI, store: Store, records: RunRecords, predictors: Predictors
) -> None:
    """Add the routes for Folio's runs, its pages and `dashboard.py`."""
    answers = {
        "GET": records.run,
        "POST": records.receive,
        "DELETE": records.delete,
        "PUT knobs": records.set_knobs,
        "PUT hidden": records.hide,
    }

    async def message_of(request: Request, uuid: str) -> dict[str, Any]:
        # NaN, which is not JSON, as text
        message = json.loads(await request.body() or "{}", parse_constant=str)
        if not isinstance(message, dict) or not re.fullmatch("[0-9a-f]{10,64}", uuid):
            raise ValueError("not a message of a run")
        return message | dict(request.query_params)

    @app.get("/api/folio/runs")
    async def runs(known: str = "") -> JSONResponse:
        """All runs; only the revision if the page knows it already."""
        content: dict[str, Any] = {"revision": records.revision}
        if known != records.revision:
            content["runs"] = records.summaries()
        return JSONResponse(content)

    @app.get("/api/folio/trials")
    async def last_trials() -> JSONResponse:
        # the database is in the folder of the runs, unless --db moves it
        return JSONResponse(trials(store.path.parent / "trials"))

    @app.api_route("/api/folio/runs/{uuid}", methods=["GET", "POST", "DELETE"])
    @app.put("/api/folio/runs/{uuid}/{what}")
    async def answer(request: Request, uuid: str, what: str = "") -> JSONResponse:
        message = await message_of(request, uuid)
        with store.transaction():
            return JSONResponse(
                answers[f"{request.method} {what}".strip()](uuid, message)
            )

    @app.post("/api/folio/try/{uuid}")
    async def ask_model(request: Request, uuid: str) -> JSONResponse:
        message = await message_of(request, uuid)
        folder = records.folder(uuid)
        if folder is None:
            raise ValueError("the folder of this run is not on this machine")
        return JSONResponse(await predictors.ask(str(folder), message))
