"""The page /try without a server: the files that it loads, for a folder on any host of static files.

What the dashboard answers there, `board/browser/models.js` answers in the browser.
"""

import gzip
import shutil
from pathlib import Path

from board.files import MODULES, STATIC
from runs.errors import InputError

BROWSER = Path(__file__).parent / "browser"
SHARED = ("folio.css", "page.js", "try.js")  # with the dashboard
RUNTIME = MODULES / "onnxruntime-web" / "dist"
PACKED = RUNTIME / "ort-wasm-simd-threaded.wasm"  # a quarter of its size with gzip
VENDORED = (
    MODULES / "d3" / "dist" / "d3.min.js",
    RUNTIME / "ort.wasm.bundle.min.mjs",
)


def check_packages() -> None:
    """Raise InputError if npm's packages are not installed."""
    for file in (*VENDORED, PACKED):
        if not file.is_file():
            raise InputError(
                f"{file} is missing: install npm, then run `make .venv/vendored`"
            )


def write_page(folder: Path) -> None:
    """Write the files of the page, all but those of its run, into a folder. Raises OSError."""
    shared = [STATIC / name for name in SHARED]
    for file in (*shared, *BROWSER.iterdir(), *VENDORED):
        shutil.copyfile(file, folder / file.name)
    packed = gzip.compress(PACKED.read_bytes(), mtime=0)
    (folder / "onnxruntime.wasm.gz").write_bytes(packed)
