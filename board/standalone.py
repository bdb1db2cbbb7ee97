"""The page /try without a server: the files that it loads, for a folder on any host of static files.

What the dashboard answers there, `board/browser/models.js` answers in the browser.
"""

import gzip
import shutil
from pathlib import Path

from board.files import MODULES, STATIC
from runs.errors import InputError
from runs.files import ROOT

BROWSER = Path(__file__).parent / "browser"
RUNTIME = MODULES / "onnxruntime-web" / "dist"
WASM = RUNTIME / "ort-wasm-simd-threaded.wasm"
LEVEL = 6  # of gzip; 9 takes twice as long for weights that are 1% smaller
VENDORED = {
    "d3.min.js": MODULES / "d3" / "dist" / "d3.min.js",
    # browsers refuse modules of an unknown type, which .mjs has on some hosts
    "onnxruntime.js": RUNTIME / "ort.wasm.bundle.min.mjs",
    "LICENSE.d3": MODULES / "d3" / "LICENSE",
}
FILES = {
    **{file.name: file for file in BROWSER.iterdir()},
    **{name: STATIC / name for name in ("folio.css", "page.js", "try.js")},
    **VENDORED,
    "LICENSE": ROOT / "LICENSE",
}


def check_packages() -> None:
    """Raise InputError if npm's packages are not installed."""
    for file in (*VENDORED.values(), WASM):
        if not file.is_file():
            raise InputError(
                f"{file} is missing: run `make .venv/vendored` once (it needs npm)"
            )


def write_page(folder: Path) -> None:
    """Add the files of the page to a folder that has those of its run, and pack the weights. Raises
    OSError."""
    for name, file in FILES.items():
        shutil.copyfile(file, folder / name)
    pack(WASM, folder / "onnxruntime.wasm.gz")
    weights = folder / "weights.onnx"
    pack(weights, folder / "weights.onnx.gz")
    weights.unlink()


def pack(file: Path, packed: Path) -> None:
    """Write a file with gzip, because many hosts do not compress what they send."""
    with file.open("rb") as source, gzip.open(packed, "wb", LEVEL) as target:
        shutil.copyfileobj(source, target)
