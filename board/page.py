"""Folio's pages, labml's, and the files that they load: from npm's packages if installed, else from CDNs.

Every file is listed before the first request. A request's path is only looked up in this list, never joined to a
folder, so no path leads out of it.
"""

import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

STATIC = Path(__file__).parent / "static"  # Folio's own
OWN = re.compile(r"/(runs|compare|try)/?|/(run)/[0-9a-f]+/?")  # the addresses of Folio's own pages
SCRIPT = "/js/bundle.min.js"  # labml's
MODULES = Path(__file__).parent / "node_modules"
BOOTSTRAP = MODULES / "bootstrap/dist/css/bootstrap.min.css"
FONTS = MODULES / "@fortawesome/fontawesome-free"
ORIGINS = ("https://cdn.jsdelivr.net", "https://d3js.org", "https://cdnjs.cloudflare.com")
# The address in the pages, the path here, and the file.
VENDORED = (
    (f"{ORIGINS[0]}/npm/bootstrap@5.0.0-beta2/dist/css/bootstrap.min.css", "/vendor/bootstrap.min.css", BOOTSTRAP),
    (f"{ORIGINS[1]}/d3.v6.min.js", "/vendor/d3.min.js", MODULES / "d3/dist/d3.min.js"),
    (f"{ORIGINS[2]}/ajax/libs/font-awesome/5.9.0/css/all.css", "/vendor/fonts/css/all.css", FONTS / "css/all.css"),
)
# What labml's script has, and what replaces it. labml-app is pinned; another version may lack a text.
PATCHES = {
    "this.remainingTime=120": "this.remainingTime=6",  # seconds between refreshes; the page keeps answers for 5
    "0<this.remainingTime?": "document.hidden||0<this.remainingTime?",  # a hidden tab asks nothing
    "this.isPaused||(this._stop(),": "this.isPaused||!this.isActive||(this._stop(),",  # timers continued after a stop
    "e||this.isEditMode?this.refresh.stop()": "this.isEditMode?this.refresh.stop()",  # an empty list did not refresh
    "!0),this.content.render()}catch(e)": "!0),this.content.renderCharts()}catch(e)",  # a refresh lost typed options
    'fa-book",text:"Documentation",link:"https://docs.labml.ai"': 'fa-chart-line",text:"Folio",link:"/runs"',
}


@dataclass(frozen=True)
class Page:
    """The pages and their files."""

    labml: str
    own: str  # with PAGE in place of the name of a page
    files: dict[str, tuple[bytes, str | None]]  # path -> content and media type
    is_offline: bool  # whether nothing comes from a CDN

    def at(self, path: str, is_labml: bool) -> str:
        """The HTML of an address."""
        found = None if is_labml else OWN.fullmatch(path)
        return self.own.replace("PAGE", found[1] or found[2]) if found else self.labml

    @property
    def policy(self) -> str:
        """The content security policy: HTML in a run's log cannot run scripts."""
        origins = "" if self.is_offline else " " + " ".join(ORIGINS)
        return (
            f"default-src 'self'; script-src 'self'{origins}; style-src 'self' 'unsafe-inline'{origins};"
            f" font-src 'self' data:{origins}; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'"
        )


def load_page(static: Path) -> Page:
    """Read labml's page and its files from labml-app's folder `static`. Raises ValueError if they have changed."""
    labml, own = ((folder / "index.html").read_text(encoding="utf-8") for folder in (static, STATIC))
    paths = {f"/{path.relative_to(static).as_posix()}": path for path in static.rglob("*") if path.is_file()}
    is_offline = all(path.is_file() for _, _, path in VENDORED)
    if is_offline:
        labml = re.sub(r'\s(?:integrity|crossorigin)="[^"]*"', "", labml)
        for address, url, path in VENDORED:
            labml, own = labml.replace(address, url), own.replace(address, url)
            paths[url] = path
        paths |= {f"/vendor/fonts/webfonts/{path.name}": path for path in (FONTS / "webfonts").iterdir()}
    paths |= {f"/folio/{path.name}": path for path in STATIC.iterdir()}
    listed = {url: path for url, path in paths.items() if path.suffix != ".map" and path.name != "index.html"}
    files = {url: (path.read_bytes(), mimetypes.guess_type(url)[0]) for url, path in listed.items()}
    script, kind = files[SCRIPT]
    for old, new in PATCHES.items():
        if old.encode() not in script:
            raise ValueError(f"labml-app's page has changed: it does not have {old!r}")
        script = script.replace(old.encode(), new.encode())
    files[SCRIPT] = script, kind
    return Page(labml, own, files, is_offline)
