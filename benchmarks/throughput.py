"""Characters per second: Folio's training step, the annotated experiment's, and Hugging Face's BERT and ModernBERT.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, with the same shape, text, masking rate and training step; the model, the masker, the
optimizer and the precision are their own. Logits are computed at the masked positions only, which is in favor of the
annotated experiment and of BERT. The share of the peak is the rate of the model's matrix products, without those of
Muon, relative to the fastest product of the model's own shapes.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import benchmarks.models  # noqa: F401, registers the architectures
from benchmarks.command import device_preset, recipe, run_benchmark
from benchmarks.turns import Measures, compare, seconds_per_call
from configs.command_line import PRESETS, read_config, resolve
from configs.experiment import Configs, configs_of
from planning.ladder import EAGER, warmed_up

ANNOTATED = {"model.d_model": 128, "model.n_layers": 6, "model.n_heads": 8, "model.d_ff": 256}
LARGER = {"model.d_model": 384, "model.n_layers": 6, "model.n_heads": 6, "model.d_ff": 768}
SHAPES = [(ANNOTATED, 64, 32), (LARGER, 8, 256)]  # sizes of the model, windows per step, characters per window
SECONDS_PER_TURN = 1.0
SECONDS_PER_PRODUCT = 0.2  # for the peak
ADAMW = {"training.optimizer": "adamw"}
FLOAT32 = "Folio with AdamW, float32"
PEERS = recipe("peers")
RECIPES: dict[str, dict[str, Any]] = {  # keys on top of the preset for the device
    "Folio": {},
    "Folio with AdamW": ADAMW,
    "annotated": read_config(PRESETS / "annotated.yaml") | EAGER,
    FLOAT32: ADAMW | {"training.precision": "float32"},  # as the others on a CPU
    **{name: PEERS["keys"] | keys for name, keys in PEERS["peers"].items()},
}


def main(options: Namespace, path: Path) -> None:
    slower: list[str] = []  # lines about compiling, for example why a step is not compiled or recorded
    groups = {}
    for sizes, n_windows, seq_len in SHAPES[:1] if options.quick else SHAPES:
        name = f"{sizes['model.n_layers']} layers of {sizes['model.d_model']}, {n_windows} x {seq_len}"
        stages = [{"until": 1.0, "seq_len": seq_len}]
        shape = sizes | {"training.chars_per_step": n_windows * seq_len, "training.stages": stages}
        groups[name] = {variant: candidate(keys | shape, slower.append) for variant, keys in RECIPES.items()}
    compare(path, groups, 3 if options.quick else options.repeats, base="Folio", slower=slower)


def candidate(keys: dict[str, Any], report: Callable[[str], None]) -> Callable[[], Measures]:
    """The speed of about a second of steps, measured when it is called."""
    configs = configured(keys)
    step, model, n_chars = warmed_up_step(configs, report), configs.model, configs.training.chars_per_step
    flops_per_char = flops_of(warmed_up_step(configured(keys | ADAMW | EAGER))) / n_chars
    dtype = torch.bfloat16 if configs.training.autocast else torch.float32
    peak = peak_flops_per_second(n_chars, model.d_model, model.d_ff, configs.torch_device, dtype)

    def turn() -> Measures:
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(step, 2)))
        rate = n_chars / seconds_per_call(step, n)
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


def configured(keys: dict[str, Any]) -> Configs:
    """The preset of this machine's device with `keys`, and with what all have in common."""
    keys = {"data.corpus": "tiny_shakespeare"} | keys | {"model.ngrams": 0, "masking.masking_prob": 0.15}
    return configs_of(resolve(read_config(PRESETS / f"{device_preset()}.yaml"), keys))


def warmed_up_step(configs: Configs, report: Callable[[str], None] = print) -> Callable[[], torch.Tensor]:
    """A function that takes a warmed-up step of the only stage and returns the loss, on the device."""
    ((step, (stage,)),) = warmed_up(configs, report)
    return lambda: step(stage)["loss"]


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats"}
    run_benchmark(main, {"quick": quick}, repeats=5)
