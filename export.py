"""Convert a trained run for other tools.

python export.py RUN --to huggingface DIR      RUN: a folder, a uuid or its first characters, or last
python export.py RUN --to onnx FILE            also: onnx-int8 FILE, a quarter as large, with close
                                               logits
python export.py RUN --to page DIR             a folder for any static host: the page /try with the
                                               model in it; also: page-int8 DIR
python export.py RUN --to sentence-transformers DIR
                                               vectors of texts: those of predict.py --vectors
python export.py RUN --to tensorboard DIR      also: wandb DIR, csv FILE

The first two also convert a classifier: RUN is then the folder of finetune.py --save.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.command_line.program import fail, run_main
from configs.command_line.scripts import run_parser, run_script
from configs.hugging_face import ARCHITECTURE
from configs.keys import ConfigError
from data.tasks.task import LABELS, NUMBER, PAIR, WORDS
from runs.find import find_run
from runs.run_folder import RunFolder
from trained import vectors
from trained.load import Trained, load
from trained.model_card import SENTENCE_TRANSFORMERS
from trained.saved_classifier import check_new, is_classifier, load_classifier
from training import trackers

GITHUB_MB = 100  # of one file


def main(arguments: list[str]) -> int:
    parser = run_parser(__doc__)
    formats = f"{', '.join(FORMATS)}; a new file or folder"
    parser.add_argument(
        "--to", nargs=2, metavar=("FORMAT", "PATH"), required=True, help=formats
    )
    vectors.add_options(parser)
    return run_script(parser, arguments, convert, "requirements-export.txt")


def convert(options: Namespace) -> int:
    name = options.to[0]
    path = Path(options.to[1])
    if name not in FORMATS:
        raise ConfigError(f"--to {name}: choose one of {', '.join(FORMATS)}")
    for option in ("pooling", "layer"):
        if getattr(options, option) and name != SENTENCE_TRANSFORMERS:
            raise ConfigError(f"--{option} needs --to {SENTENCE_TRANSFORMERS}")
    check_new(path, f"--to {name}")
    given = {}
    source: Any
    if is_classifier(Path(options.run)):
        if name not in OF_MODELS:
            raise ConfigError(
                f"{options.run} is a classifier: use --to {' or --to '.join(OF_MODELS)}"
            )
        source = load_classifier(Path(options.run))
        # no pipeline of others reads these
        if source.kind in (PAIR, LABELS, NUMBER, WORDS):
            raise ConfigError(
                "a classifier of pairs of texts, of several labels, of numbers, or of words cannot"
                " be exported: use it with predict.py"
            )
        if source.ngrams is not None:
            print("only the fine-tuned model is exported: its n-grams are left out")
    else:
        source = find_run(options.run, options.logs)
        if name == SENTENCE_TRANSFORMERS:
            given = {"pooling": options.pooling, "layer": options.layer}
            vectors.check_options(source, **given)
        if name not in TRACKERS:
            source = load(source)

    try:
        # A temporary path until the export is complete. The suffix stays, because libraries read
        # it.
        with TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
            part = Path(folder) / path.name
            FORMATS[name](source, part, **given)
            give_usual_modes(part)
            part.rename(path)
    except OSError as error:
        return fail(f"cannot write {path} ({error.strerror or error})")

    print(path)

    return 0


def give_usual_modes(path: Path) -> None:
    """Give a file, or all files of a folder, the mode that new files have: safetensors creates them
    with 0600."""
    umask = os.umask(0)
    os.umask(umask)
    for file in (path, *path.rglob("*")):
        if file.is_file():
            file.chmod(0o666 & ~umask)


def to_hugging_face(trained: Trained, folder: Path) -> None:
    # transformers imports torchvision if it is installed; the one that labml_nn installs needs
    # torch's CUDA build.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    if trained.values["model.architecture"] == ARCHITECTURE:
        from trained.hugging_face_checkpoint import export_checkpoint as export
    else:
        from trained.hugging_face import export

    export(trained, folder)


def to_sentence_transformers(
    trained: Trained, folder: Path, pooling: str | None, layer: int | None
) -> None:
    _ = trained.encoder  # refuse models without one
    to_hugging_face(trained, folder)
    from trained.sentence_transformers import convert

    convert(trained, folder, pooling, layer)


def to_onnx(trained: Trained, file: Path) -> None:
    from trained.onnx_file import export

    export(trained, file)


def to_small_onnx(trained: Trained, file: Path) -> None:
    from trained.onnx_file import quantize

    to_onnx(trained, file)
    quantize(file)


def to_page(trained: Trained, folder: Path, is_quantized: bool = False) -> None:
    from board.standalone import check_packages, write_page
    from trained.page import check_tokens, write_model

    check_packages()
    check_tokens(trained)
    folder.mkdir()
    print(write_model(trained, folder, is_quantized))
    write_page(folder)
    print_sizes(folder, is_quantized)


def print_sizes(folder: Path, is_quantized: bool) -> None:
    """Print the sizes of the parts of a page, and a hint if a host may refuse its largest file."""
    sizes = {path.name: path.stat().st_size / 1e6 for path in folder.iterdir()}
    weights = sizes["weights.onnx.gz"]
    runtime = sizes["onnxruntime.wasm.gz"]
    page = sum(sizes.values()) - weights - runtime
    print(f"weights {weights:.1f} MB, onnxruntime {runtime:.1f} MB, page {page:.1f} MB")
    if weights > GITHUB_MB:
        smaller = "" if is_quantized else "--to page-int8, or "
        print(
            f"weights.onnx.gz is above GitHub's {GITHUB_MB} MB per file: try {smaller}a run with"
            " model.ngrams=0"
        )


def to_tracker(track: Callable[..., None], run: RunFolder, path: Path) -> None:
    track(run, path, run.metrics())


OF_MODELS = {
    "huggingface": to_hugging_face,
    "onnx": to_onnx,
    "onnx-int8": to_small_onnx,
}
TRACKERS = {
    "tensorboard": partial(to_tracker, trackers.to_tensorboard),
    "wandb": partial(to_tracker, trackers.to_wandb),
    "csv": partial(to_tracker, trackers.to_csv),
}
FORMATS: dict[str, Callable[..., None]] = {
    **OF_MODELS,
    "page": to_page,
    "page-int8": partial(to_page, is_quantized=True),
    SENTENCE_TRANSFORMERS: to_sentence_transformers,
    **TRACKERS,
}


if __name__ == "__main__":
    run_main(main)
