"""The speed of a trained run: PyTorch's eager mode next to its ONNX file in onnxruntime.

python -m benchmarks.inference [RUN] [--repeats 15]        RUN: a folder, a uuid or its first characters, or `last`

Both compute the logits of every position with the same number of threads, in turns. A ratio is the time of PyTorch
divided by that of onnxruntime in the same round: above 1, onnxruntime is faster.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch

from benchmarks.command import run_benchmark, save_results
from benchmarks.turns import seconds_per_call, take_turns
from runs.files import ROOT
from trained.load import Trained, load_trained, random_ids
from trained.onnx_file import export

SHAPES = ((1, 32), (1, 256), (32, 256))  # batch, length
CHARS = 32_768  # per turn, at least


@torch.inference_mode()
def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    trained = load_trained(options.run, ROOT / "logs")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export(trained, file)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(file, settings)
    passes = {}
    for shape in SHAPES:
        n = max(1, CHARS // (shape[0] * shape[1]))
        for name, one_pass in candidates(trained, session, shape).items():
            passes[name, shape] = partial(seconds_per_call, one_pass, n)
    turns = {key: np.array(seconds) for key, seconds in take_turns(passes, options.repeats, warmup=1).items()}
    rows = []
    print("batch  length  PyTorch ms  onnxruntime ms   ratio (quartiles)")
    for shape in SHAPES:
        pytorch, onnx = turns["PyTorch", shape], turns["onnxruntime", shape]
        low, middle, high = np.quantile(pytorch / onnx, (0.25, 0.5, 0.75)).tolist()
        row = {
            "shape": shape,
            "pytorch_ms": 1000 * float(np.median(pytorch)),
            "onnxruntime_ms": 1000 * float(np.median(onnx)),
            "ratio": middle,
            "ratio_quartiles": [low, high],
        }
        rows.append(row)
        times = f"{row['pytorch_ms']:11.2f} {row['onnxruntime_ms']:15.2f}"
        print(f"{shape[0]:5} {shape[1]:7} {times}   {middle:.2f} ({low:.2f} to {high:.2f})")
    save_results(path, run=trained.run.path.name, comment=trained.run.about()["comment"], shapes=rows)


def candidates(
    trained: Trained, session: onnxruntime.InferenceSession, shape: tuple[int, int]
) -> dict[str, Callable[[], torch.Tensor]]:
    """A pass over random characters of a shape [batch, length], by name."""
    ids = random_ids(trained, *shape)
    inputs = {"input_ids": ids.numpy()}
    return {
        "PyTorch": lambda: trained.model(ids),
        "onnxruntime": lambda: torch.from_numpy(session.run(None, inputs)[0]),
    }


if __name__ == "__main__":
    run_benchmark(main, extra={"run": {"nargs": "?", "default": "last", "metavar": "RUN"}}, repeats=15)
