"""Data sets of the Hugging Face Hub, read by the package `datasets`."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from data.text.files import CorpusError
from runs.errors import first_line

HUB = "hf:"  # how the name of such a data set begins


def folder_of_data_set(name: str, cache: Path, announce: Callable[[str], None]) -> Path:
    """A folder of links to the Arrow files of a data set, which `datasets` downloads first.

    `name` is hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT; the split is `train` by default.
    Raises CorpusError.
    """
    folder = cache / "hub" / hashlib.sha256(name.encode()).hexdigest()[:16]
    links = list(folder.glob("*.arrow"))
    if links and all(link.exists() for link in links):
        return folder

    try:
        from datasets import load_dataset
    except ImportError as error:
        raise CorpusError(f"{name!r} needs datasets: pip install datasets") from error

    announce(f"loading {name} by datasets")
    path, config, split, *_ = [*name.removeprefix(HUB).split(":"), "", ""]
    try:
        data_set = load_dataset(path, config or None, split=split or "train")
    except Exception as error:  # of many packages
        raise CorpusError(f"cannot load {name!r} ({first_line(error)})") from error

    folder.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(data_set.cache_files):
        link = folder / f"{number:06}.arrow"
        link.unlink(missing_ok=True)
        link.symlink_to(file["filename"])
    return folder
