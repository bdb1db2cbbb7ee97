"""The files of labml's page with Folio's changes, and those that it loads from CDNs: from npm's packages if installed.

Every file is listed before the first request. A request's path is only looked up in this list, never joined to a
folder, so no path leads out of it.
"""

import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

from board.patches import patched

STATIC = Path(__file__).parent / "static"  # Folio's own
COMPARE = STATIC / "compare.html"
SCRIPT = "/js/bundle.min.js"  # labml's
OURS = '<link href="/folio/folio.css" rel="stylesheet"><script defer src="/folio/live.js"></script></head>'
MODULES = Path(__file__).parent / "node_modules"
BOOTSTRAP = MODULES / "bootstrap/dist/css/bootstrap.min.css"
FONTS = MODULES / "@fortawesome/fontawesome-free"
ORIGINS = ("https://cdn.jsdelivr.net", "https://d3js.org", "https://cdnjs.cloudflare.com")
# The address in labml's page, the path here, and the file.
VENDORED = (
    (f"{ORIGINS[0]}/npm/bootstrap@5.0.0-beta2/dist/css/bootstrap.min.css", "/vendor/bootstrap.min.css", BOOTSTRAP),
    (f"{ORIGINS[1]}/d3.v6.min.js", "/vendor/d3.min.js", MODULES / "d3/dist/d3.min.js"),
    (f"{ORIGINS[2]}/ajax/libs/font-awesome/5.9.0/css/all.css", "/vendor/fonts/css/all.css", FONTS / "css/all.css"),
)


@dataclass(frozen=True)
class Page:
    """The page and its files."""

    index: bytes
    compare: bytes  # the page that compares runs
    files: dict[str, tuple[bytes, str | None]]  # path -> content and media type
    is_offline: bool  # whether nothing comes from a CDN

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
    index = (static / "index.html").read_text(encoding="utf-8").replace("</head>", OURS)
    paths = {f"/{path.relative_to(static).as_posix()}": path for path in static.rglob("*") if path.is_file()}
    del paths["/index.html"]
    is_offline = all(path.is_file() for _, _, path in VENDORED)
    compare = COMPARE.read_text(encoding="utf-8")
    if is_offline:
        index = re.sub(r'\s(?:integrity|crossorigin)="[^"]*"', "", index)
        for address, url, path in VENDORED:
            index, compare = index.replace(address, url), compare.replace(address, url)
            paths[url] = path
        paths |= {f"/vendor/fonts/webfonts/{path.name}": path for path in (FONTS / "webfonts").iterdir()}
    listed = {url: path for url, path in paths.items() if path.suffix != ".map"}
    listed |= {f"/folio/{path.name}": path for path in STATIC.iterdir() if path != COMPARE}
    files = {url: (path.read_bytes(), mimetypes.guess_type(url)[0]) for url, path in listed.items()}
    files[SCRIPT] = patched(files[SCRIPT][0].decode()).encode(), files[SCRIPT][1]
    return Page(index.encode(), compare.encode(), files, is_offline)
