"""The files of labml's page, and those that it loads from elsewhere: from npm's packages where they are installed.

Every file that can be asked for is listed before the first request. A path is looked up in that list and never put
together, so there is no path that leads anywhere else.
"""

import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "node_modules"
FONT_AWESOME = MODULES / "@fortawesome" / "fontawesome-free"
# What the page asks for, where it is served from here, and the file that it is.
VENDORED = (
    (
        "https://cdn.jsdelivr.net/npm/bootstrap@5.0.0-beta2/dist/css/bootstrap.min.css",
        "/vendor/bootstrap.min.css",
        MODULES / "bootstrap" / "dist" / "css" / "bootstrap.min.css",
    ),
    ("https://d3js.org/d3.v6.min.js", "/vendor/d3.min.js", MODULES / "d3" / "dist" / "d3.min.js"),
    (
        "https://cdnjs.cloudflare.com/ajax/libs/font-awesome/5.9.0/css/all.css",
        "/vendor/font-awesome/css/all.css",
        FONT_AWESOME / "css" / "all.css",
    ),
)
ORIGINS = ("https://cdn.jsdelivr.net", "https://d3js.org", "https://cdnjs.cloudflare.com")


@dataclass(frozen=True)
class Page:
    """What is served beside the interface: the page itself, and files by path."""

    index: bytes
    files: dict[str, tuple[bytes, str]]  # path -> content and its type
    is_offline: bool  # whether nothing is loaded from elsewhere

    @property
    def policy(self) -> str:
        """What a browser lets the page do: a log that holds HTML runs no script."""
        elsewhere = "" if self.is_offline else " " + " ".join(ORIGINS)
        return (
            f"default-src 'self'; script-src 'self'{elsewhere}; style-src 'self' 'unsafe-inline'{elsewhere};"
            f" font-src 'self' data:{elsewhere}; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'"
        )


def load_page(static: Path) -> Page:
    """Read labml's page and its files from the folder `static` of labml-app."""
    index = (static / "index.html").read_text(encoding="utf-8")
    files = {f"/{path.relative_to(static).as_posix()}": path for path in static.rglob("*") if path.is_file()}
    is_offline = all(path.is_file() for _, _, path in VENDORED)
    if is_offline:
        index = re.sub(r'\s(?:integrity|crossorigin)="[^"]*"', "", index)
        for asked, here, path in VENDORED:
            index = index.replace(asked, here)
            files[here] = path
        fonts = FONT_AWESOME / "webfonts"
        files |= {f"/vendor/font-awesome/webfonts/{path.name}": path for path in fonts.iterdir()}
    content = {url: (path.read_bytes(), _type(path)) for url, path in files.items() if path.suffix != ".map"}
    content.pop("/index.html", None)
    return Page(index.encode(), content, is_offline)


def _type(path: Path) -> str:
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"
