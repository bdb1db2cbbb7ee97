"""Takes `make gpu` to a rented machine that has PyTorch, and no network.

python -m benchmarks.lease collect PACKAGES    here: PACKAGES is the output of `pip freeze` there
python -m benchmarks.lease run [FOLDER] [--minutes 12] ...    there: the report goes to FOLDER

`collect` puts the packages that the machine lacks and the text into the folder `wheels`. `run`
installs them beside the copy of the repository, and starts benchmarks.gpu. Without FOLDER, the
environment variable OUT names it.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
WHEELS = ROOT / "wheels"
SITE = ROOT / "logs" / "site-packages"
TEXT = "tiny_shakespeare.txt"
PYTHON = os.environ.get("PYTHON_VERSION", "3.12")  # there
# of wheels: pip matches the version of glibc exactly
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in range(17, 40)] + [
    "manylinux2014_x86_64"
]


def canonical(requirement: str) -> str:
    """The name of the package in a requirement."""
    name = re.match(r"[\w.-]*", requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def required(file: Path) -> list[str]:
    """The packages in a file of requirements, and in those that it includes."""
    names = []
    for line in file.read_text().splitlines():
        if line.startswith("-r "):
            names += required(file.with_name(line[3:]))
        elif line and not line.startswith("#"):
            names.append(line)
    return names


def needed(requirements: list[str]) -> dict[str, str]:
    """The installed versions of packages and of all that they require."""
    versions: dict[str, str] = {}
    waiting = list(requirements)
    while waiting:
        name = canonical(waiting.pop())
        if name in versions:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform
            continue
        versions[name] = package.version
        every = package.requires or []
        waiting += [each for each in every if "extra ==" not in each]
    return versions


def missing(packages: str) -> list[str]:
    """The requirements, each with its version, that the lines of `pip freeze` do not name."""
    there = {canonical(line) for line in packages.splitlines()}
    versions = needed(required(ROOT / "requirements-gpu.txt"))
    return sorted(f"{name}=={versions[name]}" for name in versions.keys() - there)


def collect(packages: str) -> None:
    """Download the missing wheels, and write the text beside them."""
    from data.corpus import TINY_SHAKESPEARE, load_corpus

    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", PYTHON, "-d", str(WHEELS)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command + missing(Path(packages).read_text()), check=True)
    text = load_corpus(TINY_SHAKESPEARE)
    (WHEELS / TEXT).write_bytes((text.training + text.validation).encode())
    megabytes = sum(file.stat().st_size for file in WHEELS.iterdir()) / 1e6
    print(f"copy the repository there, with its folder wheels ({megabytes:.0f} MB)")


def run(words: list[str]) -> None:
    """Install the wheels, and become `benchmarks.gpu`."""
    folder = os.environ.get("OUT", "report")
    if words and not words[0].startswith("-"):
        folder, *words = words
    wheels = [str(file) for file in WHEELS.glob("*.whl")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index"]
    options = ["--no-deps", "--upgrade", "--target", str(SITE)]
    if wheels:
        subprocess.run(pip + options + wheels, check=True)
    own = {"PYTHONPATH": str(SITE), "PYTHONUNBUFFERED": "1"}
    if (WHEELS / TEXT).exists():
        own["FOLIO_TINY_SHAKESPEARE"] = str(WHEELS / TEXT)
    command = [sys.executable, "-m", "benchmarks.gpu", "--copy-to", folder, *words]
    os.execve(sys.executable, command, os.environ | own)


if __name__ == "__main__":
    if sys.argv[1:2] == ["collect"] and len(sys.argv) == 3:
        collect(sys.argv[2])
    elif sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
    else:
        sys.exit(__doc__)
