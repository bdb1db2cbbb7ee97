"""Training speed with several processes: how much of it exchanging gradients costs.

python -m benchmarks.processes [--repeats 5] [--seconds 15]

Three ways to use two cores train in turns, at the annotated shape (64 windows of 32 characters, 6 layers, d_model 128)
with Folio's model and Muon: one process with two threads; two processes of one thread each, started by torchrun, which
share each batch; and two separate runs of one thread each with half the batch, which exchange nothing. A ratio is to
one process with two threads in the same round.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.command import run_benchmark, save_results
from benchmarks.turns import take_turns
from runs.files import ROOT

BATCH = 2_048  # characters
KEYS = {
    "data.corpus": "play",
    "model.d_model": 128,
    "model.n_layers": 6,
    "model.n_heads": 8,
    "model.d_ff": 256,
    "training.stages": "[{until: 1.0, seq_len: 32}]",
    "training.evaluations": 1,
    "sample.every_evaluations": 0,
}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
BASE, SHARED, SEPARATE = "1 process, 2 threads", "2 processes, 1 thread each", "2 separate runs, 1 thread each"


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    ways = {
        BASE: partial(rate, options.seconds, n_runs=1, n_threads=2, batch=BATCH),
        SHARED: partial(rate, options.seconds, n_runs=1, n_threads=1, batch=BATCH, launcher=TORCHRUN),
        SEPARATE: partial(rate, options.seconds, n_runs=2, n_threads=1, batch=BATCH // 2),
    }
    turns = take_turns(ways, options.repeats, warmup=1)  # the first round compiles
    results = {}
    print(f"{'':32} characters per second   ratio (lowest to highest)")
    for way, rates in turns.items():
        all_ratios = np.divide(rates, turns[BASE]).tolist()
        median, ratio = statistics.median(rates), statistics.median(all_ratios)
        results[way] = {"chars_per_second": median, "ratio": ratio, "ratios": all_ratios}
        print(f"{way:32} {median:21,.0f}   {ratio:.3f} ({min(all_ratios):.3f} to {max(all_ratios):.3f})")
    save_results(path, repeats=options.repeats, ways=results)


def rate(seconds: float, *, n_runs: int, n_threads: int, batch: int, launcher: tuple[str, ...] = ()) -> float:
    """Characters per second of all runs together, which train at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        keys = KEYS | {"logs": folder, "training.max_seconds": seconds, "training.chars_per_step": batch}
        words = [f"{key}={value}" for key, value in keys.items()]
        command = [
            sys.executable,
            *launcher,
            "experiment.py",
            "--preset",
            "quick",
            "device=cpu",
            "model.ngrams=0",
            *words,
        ]
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
    return sum(row["chars_per_second"] for row in rows)


if __name__ == "__main__":
    run_benchmark(main, repeats=5, seconds=15.0)
