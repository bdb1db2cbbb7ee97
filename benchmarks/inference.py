"""The speed of a trained run: PyTorch's eager mode next to its ONNX file in onnxruntime.

python -m benchmarks.inference [RUN] [--repeats 15]        RUN: a folder, a uuid or its first
characters, or `last`

Both compute the logits of every position with the same number of threads, in turns.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.command import run_benchmark
from benchmarks.turns import Candidates, Measures, compare
from trained.load import Trained, load_trained, random_ids
from trained.onnx_file import export, open_session
from training.callbacks.speed import seconds_per_call

SHAPES = ((1, 32), (1, 256), (32, 256))  # batch, length
CHARS = 32_768  # per turn, at least


@torch.inference_mode()
def main(options: Namespace, path: Path) -> None:
    trained = load_trained(options.run)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export(trained, file)
        session = open_session(file, torch.get_num_threads())

    groups = {}
    for batch, length in SHAPES:
        groups[f"{batch} x {length}"] = candidates(trained, session, batch, length)

    facts = {"run": trained.run.path.name, "comment": trained.run.about()["comment"]}
    compare(path, groups, options.repeats, base="PyTorch", warmup=1, **facts)


def candidates(trained: Trained, session: Any, batch: int, length: int) -> Candidates:
    """Both ways to compute the logits of random characters `[batch, length]`."""
    ids = random_ids(trained, batch, length)
    inputs = {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
    n = max(1, CHARS // (batch * length))

    def turn(one_pass: Callable[[], torch.Tensor]) -> Measures:
        return {"passes per second": 1 / seconds_per_call(one_pass, n)}

    return {
        "PyTorch": partial(turn, lambda: trained.model(ids)),
        "onnxruntime": partial(
            turn, lambda: torch.from_numpy(session.run(None, inputs)[0])
        ),
    }


if __name__ == "__main__":
    run_benchmark(
        main, repeats=15, run={"nargs": "?", "default": "last", "metavar": "RUN"}
    )
