"""Characters per second: Folio's training step, the annotated experiment's, and Hugging Face's BERT and ModernBERT.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, with the same shape and the same text. A ratio is between turns of the same round.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks import peers
from benchmarks.command import device_preset, preset_values, run_benchmark, save_results
from benchmarks.peak import flops_per_char, peak_flops_per_second
from benchmarks.peers import MASKING_PROB, Shape, Step
from benchmarks.turns import seconds_per_call, take_turns, warmed_up_step
from configs.devices import best_device
from configs.experiment import Configs, configs_of
from runs.figures import save_figure

ANNOTATED = Shape(d_model=128, n_layers=6, n_heads=8, d_ff=256, seq_len=32, batch_size=64)
LARGER = Shape(d_model=384, n_layers=6, n_heads=6, d_ff=768, seq_len=256, batch_size=8)
BATCHES_ON_CUDA = (64, 256, 1024, 4096, 16_384)  # windows; on CUDA each step is also measured with its best batch
SECONDS_PER_TURN = 1.0
TURNS_PER_BATCH = 3
BASE = "annotated"


def main(options: Namespace, path: Path) -> None:
    """Measure, print tables, and write JSON and a figure."""
    device = torch.device(best_device())
    shapes = [ANNOTATED, replace(LARGER, batch_size=128) if device.type == "cuda" else LARGER]
    names, repeats = list(STEPS), options.repeats
    if options.quick:
        shapes, names, repeats = shapes[:1], [name for name in names if name != "Folio with AdamW"], 3
    results = []
    for shape in shapes:
        results.append(measure(shape, device, repeats, names))
        print(f"\n{table(results[-1])}\n", flush=True)
    content: dict[str, Any] = {"repeats": repeats, "shapes": results}
    if device.type == "cuda" and not options.quick:
        print("searching for each step's best batch: about 10 minutes", flush=True)
        content["chars_per_second_by_batch"] = by_batch = {
            name: rates_by_batch(name, BATCHES_ON_CUDA) for name in STEPS
        }
        best = (f"{name} {max(rates.values()):,.0f}" for name, rates in by_batch.items())
        print("characters per second with the best batch of windows of 32: " + ", ".join(best))
    save_results(path, **content)
    save_figure(path.with_suffix(".png"), figure(results))


def measure(shape: Shape, device: torch.device, repeats: int, names: Sequence[str]) -> dict[str, Any]:
    """The steps in turns at one shape, and how fast the device multiplies matrices."""
    steps = {name: STEPS[name](shape) for name in names}
    turns = take_turns({name: partial(seconds_per_call, s, steps_per_turn(s)) for name, s in steps.items()}, repeats)
    chars_per_second = {name: [shape.chars_per_step / seconds for seconds in turn] for name, turn in turns.items()}
    dtypes = (torch.float32, torch.bfloat16) if device.type == "cuda" else (torch.float32,)
    peaks = {str(dtype).removeprefix("torch."): peak_flops_per_second(shape, device, dtype) for dtype in dtypes}
    n_tokens = configured(shape).data.vocabulary.n_tokens
    rows = {}
    for name, rates in chars_per_second.items():
        rate, operations = statistics.median(rates), flops_per_char(shape, name, n_tokens)
        # labml's experiment computes in float32 everywhere.
        dtype = "bfloat16" if device.type == "cuda" and name != BASE else "float32"
        rows[name] = {
            "chars_per_second": rate,
            "all": rates,
            "ratios": {other: float(np.median(np.divide(rates, x))) for other, x in chars_per_second.items()},
            "flops_per_char": operations,
            "dtype": dtype,
            "share_of_peak": {kind: rate * operations / value for kind, value in peaks[dtype].items()},
        }
    return {"shape": str(shape), "peak_flops_per_second": peaks, "steps": rows}


def rates_by_batch(name: str, sizes: Sequence[int]) -> dict[int, float]:
    """Characters per second of a step at the annotated shape by number of windows, as far as the memory allows.

    Raises torch.OutOfMemoryError if it allows none.
    """
    rates: dict[int, float] = {}
    for size in sizes:
        torch._dynamo.reset()  # it stops compiling after eight shapes
        shape = replace(ANNOTATED, batch_size=size)
        try:
            step = STEPS[name](shape)
            n = steps_per_turn(step)
            seconds = statistics.median(seconds_per_call(step, n) for _ in range(TURNS_PER_BATCH))
        except torch.OutOfMemoryError:
            if not rates:
                raise
            break
        rates[size] = shape.chars_per_step / seconds
    return rates


def configured(shape: Shape, **keys: Any) -> Configs:
    """The preset of this machine's device with the model and the batch of a shape, without n-grams."""
    model = {f"model.{name}": getattr(shape, name) for name in ("d_model", "n_layers", "n_heads", "d_ff")}
    rest = {
        "data.corpus": "tiny_shakespeare",
        "model.ngrams": 0,
        "training.chars_per_step": shape.chars_per_step,
        "training.stages": [{"until": 1.0, "seq_len": shape.seq_len, "masking_prob": MASKING_PROB}],
    }
    return configs_of(preset_values(device_preset(), model | rest | keys))


def folio(shape: Shape, **keys: Any) -> Step:
    """Folio's own step."""
    step, stage = warmed_up_step(configured(shape, **keys))
    return lambda: step(stage).loss


def peer(step_of: Callable[[Shape, torch.Tensor, int], Step], shape: Shape) -> Step:
    """A step from benchmarks.peers on the same text."""
    data = configured(shape).data
    return step_of(shape, data.training_ids, data.vocabulary.n_tokens)


STEPS: Mapping[str, Callable[[Shape], Step]] = {
    "Folio": folio,
    "Folio with AdamW": lambda shape: folio(shape, **{"training.optimizer": "adamw"}),
    BASE: partial(peer, peers.annotated),
    "Hugging Face BERT": partial(peer, partial(peers.hugging_face, "bert")),
    "Hugging Face ModernBERT": partial(peer, partial(peers.hugging_face, "modernbert")),
}


def steps_per_turn(step: Step) -> int:
    """The number of steps that take about a second, measured after a few warm-up steps."""
    seconds_per_call(step, 2)
    return max(1, round(SECONDS_PER_TURN / seconds_per_call(step, 2)))


def table(result: Mapping[str, Any]) -> str:
    """The results of one shape as Markdown."""
    peaks = (
        f"{dtype} {peak['own shapes'] / 1e9:,.0f} GFLOP/s at the model's own shapes, {peak['large'] / 1e9:,.0f} large"
        for dtype, peak in result["peak_flops_per_second"].items()
    )
    lines = [
        f"{result['shape']} (matrix products: {'; '.join(peaks)})\n",
        f"| step | characters per second (lowest to highest) | ratio to {BASE} | share of the peak: own, large |",
        "|---|---|---|---|",
    ]
    for name, row in result["steps"].items():
        rate = f"{row['chars_per_second']:,.0f} ({min(row['all']):,.0f} to {max(row['all']):,.0f})"
        shares = ", ".join(f"{share:.0%}" for share in row["share_of_peak"].values())
        lines.append(f"| {name} | {rate} | {row['ratios'][BASE]:.2f} | {shares} |")
    return "\n".join(lines)


def figure(results: list[dict[str, Any]]) -> Figure:
    """The rates, one panel per shape."""
    drawn = Figure(figsize=(10, 2.6), layout="constrained")
    for axes, result in zip(drawn.subplots(1, len(results), squeeze=False)[0], results, strict=True):
        names = list(result["steps"])
        rates = [result["steps"][name]["chars_per_second"] for name in names]
        colors = ["C0" if name.startswith("Folio") else "grey" for name in names]
        axes.bar_label(axes.barh(names, rates, color=colors), labels=[f"{rate:,.0f}" for rate in rates], padding=3)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * max(rates))
        axes.set_title(result["shape"], fontsize="small")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("characters per second")
    return drawn


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats, without AdamW"}
    run_benchmark(main, {"quick": quick}, repeats=5)
