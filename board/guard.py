"""Protects labml-app: only this machine's programs and the dashboard's own pages get in."""

import re

from starlette.requests import Request

THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}


def refusal(request: Request) -> str | None:
    """Why a request is refused, if it is: its Host is not this machine (an attacker's name may resolve to 127.0.0.1),
    or it comes from another site's page."""
    headers = request.headers
    hosts = [host.lower() for host in headers.getlist("host")]
    if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0]) not in THIS_MACHINE:
        return "this dashboard is for localhost only"
    is_foreign = any(origin.lower() != f"http://{hosts[0]}" for origin in headers.getlist("origin"))
    if is_foreign or (request.scope["path"].startswith("/api/") and "cross-site" in headers.getlist("sec-fetch-site")):
        return "another site's page may not use this dashboard"
    return None
