"""Finding runs by name: a folder, a uuid or its unambiguous beginning, or `last`."""

from pathlib import Path

from runs.run_folder import RunFolder, RunFolderError

LISTED = 10  # runs in an error message


def all_runs(logs: Path) -> list[RunFolder]:
    """Every run below `logs`, oldest first."""
    configs = list(logs.glob("*/*/config.yaml"))
    return [RunFolder(path.parent) for path in sorted(configs, key=lambda path: path.stat().st_mtime)]


def find_run(name: str, logs: Path) -> RunFolder:
    """The run that `name` means: a folder, a uuid or its unambiguous beginning, or `last`.

    Raises RunFolderError, with the runs that there are, where it means none or several.
    """
    if (Path(name) / "config.yaml").is_file():
        return RunFolder(Path(name).resolve())
    runs = all_runs(logs)
    if name == "last" and runs:
        return runs[-1]
    found = [run for run in runs if name and run.path.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} runs begin with {name!r}" if found else f"there is no run {name!r}"
    raise RunFolderError(f"{problem}: {_listed(found or runs, logs)}")


def _listed(runs: list[RunFolder], logs: Path) -> str:
    if not runs:
        return f"{logs} has no runs yet; python experiment.py makes one"
    names = [f"{run.path.name[:12]} ({run.path.parent.name})" for run in runs[-LISTED:]]
    return ("the latest are " if len(runs) > LISTED else "choose last, or one of ") + ", ".join(names)
