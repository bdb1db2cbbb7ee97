"""Training speed with several processes: how much of it exchanging gradients costs.

python -m benchmarks.processes [--repeats 5] [--seconds 15]

Three ways to use two cores train in turns, at the annotated shape (64 windows of 32 characters, 6 layers, d_model 128)
with Folio's model and Muon: one process with two threads; two processes of one thread each, started by torchrun, which
share each batch; and two separate runs of one thread each with half the batch, which exchange nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

from benchmarks.command import run_benchmark
from benchmarks.turns import Measures, compare
from runs.files import ROOT

BATCH = 2_048  # characters
KEYS = {
    "device": "cpu",
    "data.corpus": "play",
    "model.d_model": 128,
    "model.n_layers": 6,
    "model.n_heads": 8,
    "model.d_ff": 256,
    "model.ngrams": 0,
    "training.stages": "[{until: 1.0, seq_len: 32}]",
    "training.evaluations": 1,
    "sample.every_evaluations": 0,
}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
BASE = "1 process, 2 threads"


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    ways = {
        BASE: partial(speed, options.seconds, n_runs=1, n_threads=2, batch=BATCH),
        "2 processes, 1 thread each": partial(
            speed, options.seconds, n_runs=1, n_threads=1, batch=BATCH, launcher=TORCHRUN
        ),
        "2 separate runs, 1 thread each": partial(speed, options.seconds, n_runs=2, n_threads=1, batch=BATCH // 2),
    }
    compare(path, {"": ways}, options.repeats, base=BASE, warmup=1)  # the first round compiles


def speed(seconds: float, *, n_runs: int, n_threads: int, batch: int, launcher: tuple[str, ...] = ()) -> Measures:
    """Characters per second of all runs together, which train at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        keys = KEYS | {"logs": folder, "training.max_seconds": seconds, "training.chars_per_step": batch}
        words = [f"{key}={value}" for key, value in keys.items()]
        command = [sys.executable, *launcher, "experiment.py", "--preset", "quick", *words]
        environment = {**os.environ, "OMP_NUM_THREADS": str(n_threads), "labml_app_url": ""}
        runs = [
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for _ in range(n_runs)
        ]
        for run in runs:
            output = run.communicate()[0]
            if run.returncode:
                sys.exit(output.decode())
        rows = [json.loads(line) for file in Path(folder).glob("*/*/metrics.jsonl") for line in file.open()]
    return {"characters per second": sum(row["chars_per_second"] for row in rows)}


if __name__ == "__main__":
    run_benchmark(main, repeats=5, seconds=15.0)
