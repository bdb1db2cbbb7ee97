"""Folio's pages, labml's, and the files that they load: from npm's packages if installed, else from
CDNs.

Every file is listed before the first request. A request's path is only looked up in this list,
never joined to a folder, so no path leads out of it. `?labml` asks for labml's page instead of
Folio's at the same address.
"""

import mimetypes
import re
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)

from board.files import MODULES, STATIC
from board.run_records import RunRecords

OWN = ("runs", "compare", "try")  # pages, besides those of runs
# of a page, Folio's or labml's; files have a dot
ADDRESS = re.compile(r"[A-Za-z0-9_/-]*")
SCRIPT = "js/bundle.min.js"  # labml's
FONTS = MODULES / "@fortawesome/fontawesome-free"
ORIGINS = (
    "https://cdn.jsdelivr.net",
    "https://d3js.org",
    "https://cdnjs.cloudflare.com",
)
# The path of each file here, its address in the pages, and the file.
VENDORED = {
    "vendor/bootstrap.min.css": (
        f"{ORIGINS[0]}/npm/bootstrap@5.0.0-beta2/dist/css/bootstrap.min.css",
        MODULES / "bootstrap/dist/css/bootstrap.min.css",
    ),
    "vendor/d3.min.js": (f"{ORIGINS[1]}/d3.v6.min.js", MODULES / "d3/dist/d3.min.js"),
    "vendor/fonts/css/all.css": (
        f"{ORIGINS[2]}/ajax/libs/font-awesome/5.9.0/css/all.css",
        FONTS / "css/all.css",
    ),
}
# else some come from CDNs
IS_OFFLINE = all(path.is_file() for _, path in VENDORED.values())
# Texts of labml's script, and their replacements. labml-app is pinned; another version may lack a
# text.
PATCHES = {
    # seconds between refreshes; the page keeps answers for 5
    "this.remainingTime=120": "this.remainingTime=6",
    "0<this.remainingTime?": "document.hidden||0<this.remainingTime?",  # a hidden tab asks nothing
    # timers continued after a stop
    "this.isPaused||(this._stop(),": "this.isPaused||!this.isActive||(this._stop(),",
    # an empty list did not refresh
    "e||this.isEditMode?this.refresh.stop()": "this.isEditMode?this.refresh.stop()",
    # a refresh lost typed options
    "!0),this.content.render()}catch(e)": "!0),this.content.renderCharts()}catch(e)",
    'fa-book",text:"Documentation",link:"https://docs.labml.ai"': 'fa-chart-line",text:"Folio",link:"/runs"',
}


def add_pages(app: FastAPI, records: RunRecords, static: Path) -> None:
    """Add the routes of the pages and of their files; labml-app's are in `static`."""
    labml, own, files = load_files(static)
    origins = "" if IS_OFFLINE else " " + " ".join(ORIGINS)
    # With this content security policy, HTML in a run's log cannot run scripts.
    policy = (
        f"default-src 'self'; script-src 'self'{origins}; style-src 'self' 'unsafe-inline'{origins};"
        f" font-src 'self' data:{origins}; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'"
    )

    def page(request: Request, own_name: str | None) -> Response:
        html = labml
        if own_name is not None and request.url.query != "labml":
            html = own.replace("PAGE", own_name)
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
        return HTMLResponse(html, headers=headers)

    @app.get("/run/{name}")
    @app.get("/run/{name}/{below:path}")
    async def run(request: Request, name: str, below: str = "") -> Response:
        uuid = records.find(name)
        if uuid != name:
            return RedirectResponse(
                request.url.replace(path=f"/run/{uuid}/{below}".rstrip("/"))
            )
        return page(request, None if below or records.record(uuid) is None else "run")

    @app.api_route("/{path:path}", methods=["GET", "HEAD"])
    async def any_other(request: Request, path: str) -> Response:
        if path in files:
            content, kind = files[path]
            safe = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
            return Response(content, media_type=kind, headers=safe)

        if path == "":
            return RedirectResponse("/runs")
        if path.startswith("api/") or not ADDRESS.fullmatch(path):
            return PlainTextResponse("not found\n", 404)
        return page(request, path if path in OWN else None)


def load_files(static: Path) -> tuple[str, str, dict[str, tuple[bytes, str | None]]]:
    """The HTML of labml's page, that of Folio's with PAGE in place of a name, and the content and
    media type of each file by its path. Raises ValueError if labml's have changed."""
    labml = (static / "index.html").read_text(encoding="utf-8")
    own = (STATIC / "index.html").read_text(encoding="utf-8")
    paths = {path.relative_to(static).as_posix(): path for path in static.rglob("*.*")}
    paths |= {f"folio/{path.name}": path for path in STATIC.iterdir()}

    if IS_OFFLINE:
        fonts = (FONTS / "webfonts").iterdir()
        paths |= {f"vendor/fonts/webfonts/{path.name}": path for path in fonts}
        labml = re.sub(r'\s(?:integrity|crossorigin)="[^"]*"', "", labml)
        for url, (address, path) in VENDORED.items():
            labml = labml.replace(address, f"/{url}")
            own = own.replace(address, f"/{url}")
            paths[url] = path

    files = {}
    for url, path in paths.items():
        if path.suffix not in (".map", ".html"):
            files[url] = (path.read_bytes(), mimetypes.guess_type(url)[0])

    script, kind = files[SCRIPT]
    for old, new in PATCHES.items():
        if old.encode() not in script:
            raise ValueError(f"labml-app's page has changed: it does not have {old!r}")
        script = script.replace(old.encode(), new.encode())

    files[SCRIPT] = script, kind
    return labml, own, files
