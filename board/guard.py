"""Protects labml-app: only this machine's browser gets in, and only listed files get out."""

import re

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from board.page import Page

THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}
TRACK = "/api/v1/default/track"
PAGES = re.compile(r"/[A-Za-z0-9_/-]*")  # addresses within the page; files have a dot


class Guard:
    """An ASGI application around labml-app's, for HTTP requests only.

    - A request gets 403 if its Host is not this machine (an attacker's name may resolve to 127.0.0.1), or if it comes
      from another site's page.
    - Files come from the page's list only. `?labml` asks for labml's page instead of Folio's at the same address.

    `/track` is an alias of `/api/v1/default/track`: labml's own clients may use the plain address of the dashboard.
    """

    def __init__(self, app: ASGIApp, page: Page):
        self.app = app
        self.page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/track":
            scope = {**scope, "path": TRACK, "raw_path": TRACK.encode()}
        answer = self._refusal(scope) or self._file(scope) or self.app
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0]) not in THIS_MACHINE:
            return PlainTextResponse("this dashboard is for localhost only\n", 403)
        is_foreign = any(origin.lower() != f"http://{hosts[0]}" for origin in headers.getlist("origin"))
        if is_foreign or (scope["path"].startswith("/api/") and "cross-site" in headers.getlist("sec-fetch-site")):
            return PlainTextResponse("another site's page may not use this dashboard\n", 403)
        return None

    def _file(self, scope: Scope) -> Response | None:
        path = scope["path"]
        if path.startswith("/api/"):
            return None
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("not allowed\n", 405)
        if path in self.page.files:
            (content, kind), safe = self.page.files[path], {"X-Content-Type-Options": "nosniff"}
            return Response(content, media_type=kind, headers=safe | {"Cache-Control": "no-cache"})
        if path == "/":
            return RedirectResponse("/runs")
        if PAGES.fullmatch(path):
            policy = {"Content-Security-Policy": self.page.policy, "Cache-Control": "no-store"}
            html = self.page.at(path, is_labml=scope["query_string"] == b"labml")
            return Response(html, media_type="text/html", headers=policy)
        return PlainTextResponse("not found\n", 404)
