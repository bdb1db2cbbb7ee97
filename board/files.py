"""The folders with the files of the pages: Folio's own, and those of npm's packages."""

from pathlib import Path

STATIC = Path(__file__).parent / "static"
MODULES = Path(__file__).parent / "node_modules"
