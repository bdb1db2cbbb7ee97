"""How many characters a second: Folio's training step, the annotated experiment's, Hugging Face's.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, at the same shape, on the same text. A ratio is between turns of one round.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks import peers
from benchmarks.differences import rotated
from benchmarks.machine import machine, results_folder, results_name
from benchmarks.peak import flops_per_char, flops_per_second, large_shape, own_shapes
from benchmarks.peers import MASKING_PROB, Shape, Step
from benchmarks.under_way import step_under_way
from configs.command_line import PRESETS, read_config, resolve
from configs.experiment import Configs, best_device, configs_of
from runs.figures import save_figure
from runs.files import write_atomically
from training import tracking
from training.schedule import Stage

ANNOTATED = Shape(d_model=128, n_layers=6, n_heads=8, d_ff=256, seq_len=32, batch_size=64)
LARGER = Shape(d_model=384, n_layers=6, n_heads=6, d_ff=768, seq_len=256, batch_size=8)
LARGER_ON_CUDA = replace(LARGER, batch_size=128)
BATCHES_ON_CUDA = (64, 256, 1024, 4096, 16_384)  # at the annotated shape: which is each step's best?
SECONDS_A_TURN = 1.0
TURNS_A_BATCH = 3
BASE = "annotated"


def main(arguments: list[str]) -> int:
    """Measure, print tables, write JSON and a picture; returns the exit code."""
    parser = argparse.ArgumentParser(description="How many characters a second?")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--repeats", type=int, default=5)
    size.add_argument("--quick", action="store_true", help="the annotated experiment's shape only, 3 repeats, no AdamW")
    options = parser.parse_args(arguments)
    repeats, shapes = (3, 1) if options.quick else (options.repeats, 2)
    tracking.be_quiet()
    device = torch.device(best_device())
    searches = device.type == "cuda" and not options.quick  # for the best batches
    print(f"throughput: about {shapes * (1 + 0.1 * repeats) + 10 * searches:.0f} minute(s)", flush=True)
    larger = LARGER_ON_CUDA if device.type == "cuda" else LARGER
    names = [name for name in STEPS if not (options.quick and name == "Folio with AdamW")]
    results = [measure(shape, device, repeats, names) for shape in (ANNOTATED, larger)[:shapes]]
    for result in results:
        print("\n" + table(result))
    content: dict[str, Any] = {"machine": machine(), "repeats": repeats, "shapes": results}
    if searches:
        content["chars_per_second_by_batch"] = by_batch = {
            name: rates_by_batch(name, BATCHES_ON_CUDA) for name in STEPS
        }
        best = (f"{name} {max(rates.values()):,.0f}" for name, rates in by_batch.items())
        print("\nCharacters a second, each with its best batch of windows of 32: " + ", ".join(best))
    folder, name = results_folder(), results_name("throughput", parser, options)
    write_atomically(folder / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())
    save_picture(folder / f"{name}.png", results)
    return 0


def measure(shape: Shape, device: torch.device, repeats: int, names: Sequence[str]) -> dict[str, Any]:
    """These steps by turns, at one shape."""
    n_tokens = configured(shape).data.vocabulary.n_tokens
    steps = {name: STEPS[name](shape) for name in names}
    counts = {name: steps_a_turn(step) for name, step in steps.items()}
    turns: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(repeats):
        for name in rotated(list(steps), i):
            turns[name].append(shape.chars_per_step / seconds_a_step(steps[name], counts[name]))
    peaks = {
        str(dtype).removeprefix("torch."): {
            "own shapes": max(flops_per_second(*sizes, device, dtype) for sizes in own_shapes(shape)),
            "large": flops_per_second(*large_shape(device), device, dtype),
        }
        for dtype in ((torch.float32, torch.bfloat16) if device.type == "cuda" else (torch.float32,))
    }
    d, head = shape.d_model, 2 * shape.d_model * n_tokens
    operations = dict.fromkeys(
        ("Folio", "Folio with AdamW"),
        flops_per_char(shape, feed_forward_matrices=3, head_flops=MASKING_PROB * (2 * d**2 + head), last=MASKING_PROB),
    ) | {
        BASE: flops_per_char(shape, feed_forward_matrices=2, head_flops=head),
        "Hugging Face BERT": flops_per_char(shape, feed_forward_matrices=2, head_flops=2 * d**2 + head),
    }
    rows = {}
    for name, rates in turns.items():
        rate = statistics.median(rates)
        # labml's experiment computes in float32 everywhere.
        dtype = "bfloat16" if device.type == "cuda" and name != BASE else "float32"
        rows[name] = {
            "chars_per_second": rate,
            "all": rates,
            "ratios": {other: statistics.median(_ratios(rates, turns[other])) for other in turns},
            "flops_per_char": operations[name],
            "dtype": dtype,
            "share_of_peak": {kind: rate * operations[name] / value for kind, value in peaks[dtype].items()},
        }
    return {"shape": str(shape), "peak_flops_per_second": peaks, "steps": rows}


def rates_by_batch(name: str, sizes: Sequence[int]) -> dict[int, float]:
    """Characters a second of a step at the annotated shape, by the number of windows; up to what memory has room for.

    Raises torch.OutOfMemoryError where that is none.
    """
    rates: dict[int, float] = {}
    for size in sizes:
        torch._dynamo.reset()  # else it compiles no more after its eighth shape
        shape = replace(ANNOTATED, batch_size=size)
        try:
            step = STEPS[name](shape)
            n = steps_a_turn(step)
            rates[size] = statistics.median(
                shape.chars_per_step / seconds_a_step(step, n) for _ in range(TURNS_A_BATCH)
            )
        except torch.OutOfMemoryError:
            if not rates:
                raise
            break
    return rates


def configured(shape: Shape, **keys: Any) -> Configs:
    """The preset of this device, at this shape."""
    preset = "gpu" if best_device() == "cuda" else "quick"
    shaped = {
        "data.corpus": "tiny_shakespeare",
        "model.d_model": shape.d_model,
        "model.n_layers": shape.n_layers,
        "model.n_heads": shape.n_heads,
        "model.d_ff": shape.d_ff,
        "training.chars_per_step": shape.chars_per_step,
        "training.stages": [{"until": 1.0, "seq_len": shape.seq_len, "masking_prob": MASKING_PROB}],
    }
    return configs_of(resolve(read_config(PRESETS / f"{preset}.yaml"), shaped | keys))


def folio(shape: Shape, **keys: Any) -> Step:
    """Folio's own step."""
    stage = Stage(1.0, shape.seq_len, MASKING_PROB)
    step = step_under_way(configured(shape, **keys), stage)
    return lambda: step(stage).loss_sum


def peer(step_of: Callable[[Shape, torch.Tensor, int], Step], shape: Shape) -> Step:
    """One of benchmarks.peers, on the same text."""
    data = configured(shape).data
    return step_of(shape, data.training_ids, data.vocabulary.n_tokens)


STEPS: Mapping[str, Callable[[Shape], Step]] = {
    "Folio": folio,
    "Folio with AdamW": lambda shape: folio(shape, **{"training.optimizer": "adamw"}),
    BASE: partial(peer, peers.annotated),
    "Hugging Face BERT": partial(peer, peers.hugging_face),
}


def steps_a_turn(step: Step) -> int:
    """So many steps that a turn takes about a second, after some to warm up."""
    seconds_a_step(step, 2)
    return max(1, round(SECONDS_A_TURN / seconds_a_step(step, 2)))


def seconds_a_step(step: Step, n: int) -> float:
    """The mean over `n` steps, the device's work included."""
    began = time.perf_counter()
    for _ in range(n):
        loss = step()
    loss.item()  # waits for the device
    return (time.perf_counter() - began) / n


def _ratios(rates: list[float], others: list[float]) -> list[float]:
    return [rate / other for rate, other in zip(rates, others, strict=True)]


def table(result: Mapping[str, Any]) -> str:
    """One shape's results as Markdown."""
    peaks = (
        f"{dtype} {peak['own shapes'] / 1e9:,.0f} GFLOP/s at the model's own shapes, {peak['large'] / 1e9:,.0f} large"
        for dtype, peak in result["peak_flops_per_second"].items()
    )
    lines = [
        f"{result['shape']} (matrix products: {'; '.join(peaks)})",
        "",
        f"| step | characters a second (lowest to highest) | against {BASE} | share of the peak: own, large |",
        "|---|---|---|---|",
    ]
    for name, row in result["steps"].items():
        share = row["share_of_peak"]
        lines.append(
            f"| {name} | {row['chars_per_second']:,.0f} ({min(row['all']):,.0f} to {max(row['all']):,.0f})"
            f" | {row['ratios'][BASE]:.2f} | {share['own shapes']:.0%}, {share['large']:.0%} |"
        )
    return "\n".join(lines)


def save_picture(path: Path, results: list[dict[str, Any]]) -> None:
    """Draw the rates, a panel a shape, and write a PNG."""
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    for axes, result in zip(figure.subplots(1, len(results), squeeze=False)[0], results, strict=True):
        names = list(result["steps"])
        rates = [result["steps"][name]["chars_per_second"] for name in names]
        labels = [f"{rate:,.0f}" for rate in rates]
        colors = ["C0" if name.startswith("Folio") else "grey" for name in names]
        axes.bar_label(axes.barh(names, rates, color=colors), labels=labels, padding=3)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * max(rates))
        axes.set_title(result["shape"], fontsize="small")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("characters a second")
    save_figure(path, figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
