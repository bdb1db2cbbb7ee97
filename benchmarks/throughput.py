"""Characters per second: Folio's training step, the annotated experiment's, and Hugging Face's BERT and ModernBERT.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, with the same shape, text, masking rate and training step; the model, the masker, the
optimizer and the precision are their own. Logits are computed at the masked positions only, which is in favor of the
annotated experiment and of BERT. The share of the peak counts the operations of the model's matrix products, without
those of Muon, relative to the rate of such products at the model's own shapes.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import benchmarks.models  # noqa: F401, registers the architectures
from benchmarks.command import device_preset, recipe, run_benchmark
from benchmarks.turns import Measures, compare, seconds_per_call
from configs.command_line import PRESETS, read_config, resolve
from configs.devices import best_device
from configs.experiment import Configs, configs_of
from training.compilation import Compilation
from training.cuda_graph import EAGER_STEPS, CudaGraphRecorder


class Shape(NamedTuple):
    """The model and batch sizes that all share."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    seq_len: int
    batch_size: int

    @property
    def chars_per_step(self) -> int:
        return self.batch_size * self.seq_len

    def __str__(self) -> str:
        return f"{self.n_layers} layers of {self.d_model}, {self.batch_size} x {self.seq_len}"


ANNOTATED = Shape(d_model=128, n_layers=6, n_heads=8, d_ff=256, seq_len=32, batch_size=64)
LARGER = Shape(d_model=384, n_layers=6, n_heads=6, d_ff=768, seq_len=256, batch_size=8)
ON_CUDA = [*(ANNOTATED._replace(batch_size=n) for n in (64, 1024, 4096)), LARGER._replace(batch_size=128)]
SECONDS_PER_TURN = 1.0
SECONDS_PER_PRODUCT = 0.2  # for the peak
ADAMW = {"training.optimizer": "adamw"}
EAGER = {"training.compile": False, "training.cuda_graph": False}
PEERS = recipe("peers")
RECIPES: dict[str, dict[str, Any]] = {  # keys on top of the preset for the device
    "Folio": {},
    "Folio with AdamW": ADAMW,
    "annotated": read_config(PRESETS / "annotated.yaml") | EAGER,
    **{name: PEERS["keys"] | keys | EAGER for name, keys in PEERS["peers"].items()},
}


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    shapes = ON_CUDA if best_device() == "cuda" else [ANNOTATED, LARGER]
    groups = {
        str(shape): {name: candidate(shape, keys) for name, keys in RECIPES.items()}
        for shape in (shapes[:1] if options.quick else shapes)
    }
    compare(path, groups, 3 if options.quick else options.repeats, base="Folio")


def candidate(shape: Shape, keys: dict[str, Any]) -> Callable[[], Measures]:
    """The speed of about a second of steps, measured when it is called."""
    configs = configured(shape, keys)
    step = warmed_up_step(configs)
    flops_per_char = flops_of(warmed_up_step(configured(shape, keys | ADAMW | EAGER))) / shape.chars_per_step
    dtype = torch.bfloat16 if configs.training.autocast else torch.float32
    peak = peak_flops_per_second(shape.chars_per_step, shape.d_model, shape.d_ff, configs.torch_device, dtype)

    def turn() -> Measures:
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(step, 2)))
        rate = shape.chars_per_step / seconds_per_call(step, n)
        return {"characters per second": rate, "share of the peak": rate * flops_per_char / peak}

    return turn


def flops_of(step: Callable[[], Any]) -> float:
    """Floating-point operations of an eager step's matrix products, those of its optimizer included."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # fused attention is not counted
        step()
    return counter.get_total_flops()


@cache
def peak_flops_per_second(rows: int, d_model: int, d_ff: int, device: torch.device, dtype: torch.dtype) -> float:
    """The best rate of the products in a model's own forward pass; each is the median of 5 measurements."""
    rates, empty = [], partial(torch.empty, device=device, dtype=dtype)
    for inner, columns in ((d_model, 3 * d_model), (d_model, d_model), (d_model, 2 * d_ff), (d_ff, d_model)):
        left, right = empty(rows, inner).normal_(), empty(inner, columns).normal_()
        product = partial(torch.mm, left, right, out=empty(rows, columns))
        seconds_per_call(product, 1)  # warms up
        n = max(1, int(SECONDS_PER_PRODUCT / seconds_per_call(product, 3)))
        seconds = median(seconds_per_call(product, n) for _ in range(5))
        rates.append(2 * rows * inner * columns / seconds)
    return max(rates)


def configured(shape: Shape, keys: dict[str, Any]) -> Configs:
    """The preset of this machine's device with `keys`, and with the model and the batch of a shape, without n-grams."""
    own = {f"model.{name}": getattr(shape, name) for name in ("d_model", "n_layers", "n_heads", "d_ff")} | {
        "data.corpus": "tiny_shakespeare",
        "model.ngrams": 0,
        "masking.masking_prob": 0.15,
        "training.chars_per_step": shape.chars_per_step,
        "training.stages": [{"until": 1.0, "seq_len": shape.seq_len}],
    }
    return configs_of(resolve(read_config(PRESETS / f"{device_preset()}.yaml"), keys | own))


def warmed_up_step(configs: Configs) -> Callable[[], torch.Tensor]:
    """The step after some updates: compiled and recorded as the configs say. It returns the loss, on the device.

    Raises RuntimeError if compiling or recording fails.
    """
    step, (stage,) = configs.step, configs.training.stage_rows
    if configs.compiled:
        Compilation(configs.compiled, step, [stage]).compile([stage], _raise_failure)
    for _ in range(EAGER_STEPS):
        step(stage)
    if configs.cuda_graphs:
        CudaGraphRecorder(configs.cuda_graphs, step).record(stage, _raise_failure)
    return lambda: step(stage)["loss"]


def _raise_failure(line: str) -> None:
    if line.startswith("training without"):
        raise RuntimeError(line)


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats"}
    run_benchmark(main, {"quick": quick}, repeats=5)
