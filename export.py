"""Convert a trained run for other tools.

python export.py RUN --to huggingface DIR       RUN: a folder, a uuid or its first characters, or `last`
python export.py RUN --to onnx FILE
python export.py RUN --to tensorboard DIR       also: wandb DIR, csv FILE
"""

import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from configs.keys import ConfigError
from configs.one_line import OneLineParser, fail, run_main
from runs.files import ROOT
from runs.find import find_run
from runs.run_folder import RunFolder, RunFolderError
from trained import trackers
from trained.load import load_trained
from training.checkpoint import CheckpointError


def main(arguments: list[str]) -> int:
    """Convert one run; returns the exit code."""
    parser = OneLineParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="a folder, a uuid or its first characters, or last")
    parser.add_argument(
        "--to", nargs=2, metavar=("FORMAT", "PATH"), required=True, help=f"{', '.join(FORMATS)}; a new file or folder"
    )
    parser.add_argument("--logs", type=Path, default=ROOT / "logs", help="folder of the runs (default: %(default)s)")
    try:
        options = parser.parse_args(arguments)
        name, path = options.to[0], Path(options.to[1])
        if name not in FORMATS:
            raise ConfigError(f"--to {name}: choose one of {', '.join(FORMATS)}")
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} exists already: choose another path")
        run = find_run(options.run, options.logs)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A temporary path until the export is complete. The suffix stays, because libraries read it.
        with TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
            part = Path(folder) / path.name
            FORMATS[name](run, part)
            part.rename(path)
    except ModuleNotFoundError as error:
        return fail(f"--to {name} needs {error.name}: pip install -r requirements-export.txt")
    except (ConfigError, RunFolderError, CheckpointError) as error:
        return fail(error)
    except OSError as error:
        return fail(f"cannot write {path} ({error.strerror or error})")
    except KeyboardInterrupt:
        return 130
    print(path)
    return 0


def to_hugging_face(run: RunFolder, folder: Path) -> None:
    # transformers imports torchvision if it is installed; the one that labml_nn installs needs torch's CUDA build.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    from trained import hugging_face

    hugging_face.export(load_trained(str(run.path)), folder)


def to_onnx(run: RunFolder, file: Path) -> None:
    from trained import onnx_file

    onnx_file.export(load_trained(str(run.path)), file)


FORMATS: dict[str, Callable[[RunFolder, Path], None]] = {
    "huggingface": to_hugging_face,
    "onnx": to_onnx,
    "tensorboard": trackers.to_tensorboard,
    "wandb": trackers.to_wandb,
    "csv": trackers.to_csv,
}


if __name__ == "__main__":
    run_main(main)
