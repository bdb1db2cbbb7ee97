"""What stands before labml-app: only this machine's own browser gets in, only listed files get out."""

import asyncio
import json
import re

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from board.page import Page

MAX_BODY = 8 * 2**20  # bytes; a run sends at most a quarter of it at once
HERE = {"127.0.0.1", "localhost", "[::1]"}
PAGES = re.compile(r"/[A-Za-z0-9_/-]*")  # offsets of the page's own making; files have a dot


class Guard:
    """An ASGI application around labml-app's.

    - A request with another Host than this machine (a name that an attacker's server resolves to 127.0.0.1) or with
      another site's Origin gets 403.
    - A body of more than 8 MiB gets 413, however it is sent.
    - Files come from the page's list alone.
    - What goes wrong inside is answered with a plain 500: labml-app's own answer holds a traceback.
    """

    def __init__(self, app: ASGIApp, page: Page):
        self.app = app
        self.page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refused(scope) or self._file(scope)
            await (answer(scope, receive, send) if answer else self._pass_on(scope, receive, send))
        # Anything else, such as a WebSocket, is not answered: there is none.

    def _refused(self, scope: Scope) -> Response | None:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0].lower()) not in HERE:
            return PlainTextResponse("this dashboard answers to localhost only\n", 403)
        if any(value.lower() != f"http://{hosts[0].lower()}" for name, value in headers if name == b"origin"):
            return PlainTextResponse("another site's page may not use this dashboard\n", 403)
        if scope["path"].startswith("/api/") and (b"sec-fetch-site", "cross-site") in headers:
            return PlainTextResponse("another site's page may not use this dashboard\n", 403)
        lengths = [value for name, value in headers if name == b"content-length"]
        if any(not length.isdecimal() or int(length[:20]) > MAX_BODY for length in lengths):
            return PlainTextResponse("too large\n", 413)
        return None

    def _file(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path.startswith("/api/"):
            return None
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("not allowed\n", 405)
        if path in self.page.files:
            content, kind = self.page.files[path]
            return Response(content, media_type=kind, headers={"X-Content-Type-Options": "nosniff"})
        if PAGES.fullmatch(path):
            policy = {"Content-Security-Policy": self.page.policy, "Cache-Control": "no-store"}
            return Response(self.page.index, media_type="text/html", headers=policy)
        return PlainTextResponse("not found\n", 404)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(receive)
        answer = Answer(send, body)
        try:
            await self.app(scope, body, answer)
        except asyncio.CancelledError:  # the server ends: no traceback for the requests that it leaves
            pass
        except Exception:  # whatever a hostile request makes labml-app raise
            await answer.instead(500)


class TooLargeError(Exception):
    """A body that announced no length, or a wrong one, goes on for too long."""


class Body:
    """Receives a request's body up to MAX_BODY bytes, then raises TooLargeError."""

    def __init__(self, receive: Receive):
        self.receive = receive
        self.size = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.size += len(message.get("body", b""))
        if self.size > MAX_BODY:
            raise TooLargeError
        return message


class Answer:
    """Passes an answer on, unless it is an error of the server's own: that is replaced by one that says nothing."""

    def __init__(self, send: Send, body: Body):
        self.send = send
        self.body = body
        self.has_started = False
        self.is_replaced = False

    async def __call__(self, message: Message) -> None:
        if self.is_replaced:
            return
        if message["type"] == "http.response.start":
            if message["status"] >= 500:
                await self.instead(message["status"])
                return
            self.has_started = True
        await self.send(message)

    async def instead(self, status: int) -> None:
        """Answer in place of the application; nothing can be done where its answer is already on its way."""
        if self.has_started or self.is_replaced:
            return
        self.is_replaced = True
        status, words = (413, "too large") if self.body.size > MAX_BODY else (status, "that went wrong")
        body = json.dumps({"error": words}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
