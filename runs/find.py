"""Finds runs: by a folder, a uuid or an unambiguous prefix of one, a name, or `last`; and with `@5M`
behind it, at a checkpoint of their history."""

from contextlib import suppress
from pathlib import Path

from runs.run_folder import RunFolder
from runs.schema import RunFolderError

LISTED = 10  # runs in an error message
# a folder with either is a run; starting and resuming write the second
FILES = ("about.json", "config.yaml")


def all_runs(logs: Path) -> list[RunFolder]:
    """Every run below `logs`, oldest first. Raises RunFolderError if `logs` cannot be read."""
    try:
        paths = [*logs.glob(f"*/*/{FILES[0]}"), *logs.glob(f"*/*/{FILES[1]}")]
        ages = {path.parent: path.stat().st_mtime for path in paths if path.is_file()}
    except OSError as error:
        raise RunFolderError(
            f"cannot read {str(logs)[:100]} ({error.strerror})"
        ) from error
    return [RunFolder(folder) for folder in sorted(ages, key=ages.__getitem__)]


def find_run(name: str, logs: Path) -> RunFolder:
    """The run called `name`: a folder, a uuid or an unambiguous prefix of one, or `last`. The key
    `name` stands for the latest run that has it. With `@5M` behind it, the run at that checkpoint of
    its history.

    Raises RunFolderError with a list of the runs if no run or several match.
    """
    with suppress(OSError):  # the name may be too long for a path
        if any(Path(name, file).is_file() for file in FILES):
            return RunFolder(Path(name).resolve())
        folder = name.removeprefix("hf:")
        if Path(folder, "config.json").is_file():
            raise RunFolderError(
                f"{name!r} is a checkpoint of Hugging Face, not a run: make one with python"
                f" experiment.py --init-from hf:{folder} data.corpus=PATH training.max_steps=0"
            )

    whole, at, kept = name.rpartition("@")
    if at:
        run = find_run(whole, logs)
        if kept not in run.kept():
            names = ", ".join(run.kept()) or "none: checkpoint.keep_at makes them"
            raise RunFolderError(
                f"{run.path} has no checkpoint {kept[:100]!r}: it kept {names}"
            )
        return RunFolder(run.path, kept)

    runs = all_runs(logs)
    if name == "last" and runs:
        return runs[-1]
    matching = [run for run in runs if name and run.path.name.startswith(name)]
    named = [run for run in runs if run.path.parent.name == name]
    if named and named[-1] not in matching:
        matching.append(named[-1])
    if len(matching) == 1:
        return matching[0]
    problem = f"{len(matching)} runs match" if matching else "there is no run"
    raise RunFolderError(f"{problem} {name[:100]!r}: {_listed(matching or runs, logs)}")


def find_started_by(torchrun_id: str | None, logs: Path) -> RunFolder | None:
    """The newest run that a torchrun command has started, if any."""
    for run in reversed(all_runs(logs)) if torchrun_id else ():
        with suppress(RunFolderError):  # a run that cannot be read
            if run.torchrun_id() == torchrun_id:
                return run
    return None


def _listed(runs: list[RunFolder], logs: Path) -> str:
    if not runs:
        return f"{logs} has no runs yet; python experiment.py makes one"
    names = ", ".join(
        f"{run.path.name[:12]} ({run.path.parent.name})" for run in runs[-LISTED:]
    )
    if len(runs) > LISTED:
        return f"the latest are {names}"
    return f"choose last, or one of {names}"
