"""pyproject.toml and the requirements files name the same packages."""

import tomllib

from runs.files import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def packages(path):
    """The lines of a requirements file, with an extra for each file that it includes."""
    for line in path.read_text().splitlines():
        if line.startswith("-r requirements-"):
            extra = line.removeprefix("-r requirements-").removesuffix(".txt")
            yield f"folio[{extra}]"
        elif line and not line.startswith(("#", "-r")):
            yield line


def test_the_project_has_the_packages_of_the_requirements_files():
    assert list(packages(ROOT / "requirements.txt")) == PROJECT["dependencies"]
    extras = {
        path.stem.removeprefix("requirements-"): list(packages(path))
        for path in ROOT.glob("requirements-*.txt")
    }
    assert extras == PROJECT["optional-dependencies"]
