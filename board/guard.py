"""Protects labml-app: only this machine's browser gets in, and only listed files get out."""

import asyncio
import json
import re

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from board.page import Page

MAX_BODY = 8 * 2**20  # bytes; a run sends at most a quarter of this per message
THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}
PAGES = re.compile(r"/[A-Za-z0-9_/-]*")  # addresses within the page; files have a dot


class Guard:
    """An ASGI application around labml-app's.

    - A request gets 403 if its Host is not this machine (an attacker's name may resolve to 127.0.0.1), or if it comes
      from another site's page.
    - A body of more than 8 MiB gets 413, however it is sent.
    - Files come from the page's list only.
    - An exception is answered with a plain 500, because labml-app's own answer contains a traceback.
    """

    def __init__(self, app: ASGIApp, page: Page):
        self.app = app
        self.page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self._refusal(scope) or self._file(scope)
            await (answer(scope, receive, send) if answer else Exchange(receive, send).run(self.app, scope))
        # Nothing else is answered: labml-app has no WebSockets.

    def _refusal(self, scope: Scope) -> Response | None:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0]) not in THIS_MACHINE:
            return PlainTextResponse("this dashboard is for localhost only\n", 403)
        is_foreign = any(value.lower() != f"http://{hosts[0]}" for name, value in headers if name == b"origin")
        if is_foreign or (scope["path"].startswith("/api/") and (b"sec-fetch-site", "cross-site") in headers):
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


class Exchange:
    """One request and its answer: limits the body's size, and replaces error answers of the server."""

    def __init__(self, receive: Receive, send: Send):
        self._receive = receive
        self._send = send
        self.body_size = 0
        self.has_started = False
        self.is_replaced = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:  # the server ends; the traceback of an unfinished request would only confuse
            pass
        except Exception:  # anything that a hostile request makes labml-app raise
            await self.replace(500)

    async def receive(self) -> Message:
        message = await self._receive()
        self.body_size += len(message.get("body", b""))
        if self.body_size > MAX_BODY:
            raise ValueError("the body is larger than announced, and too large")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 500:
            await self.replace(message["status"])
        elif not self.is_replaced:
            self.has_started = True
            await self._send(message)

    async def replace(self, status: int) -> None:
        """Answer in place of labml-app, unless its own answer is already under way."""
        if self.has_started or self.is_replaced:
            return
        self.is_replaced = True
        status, words = (413, "too large") if self.body_size > MAX_BODY else (status, "internal error")
        body = json.dumps({"error": words}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
