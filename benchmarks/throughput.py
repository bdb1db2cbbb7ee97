"""Characters per second: Folio's training step, the annotated experiment's, and Hugging Face's BERT and ModernBERT.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, with the same shape and the same text. The share of the peak counts the operations of the
model's matrix products, without those of Muon, relative to the rate of such products at the model's own shapes.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import peers
from benchmarks.command import device_preset, preset_values, run_benchmark
from benchmarks.peak import flops_per_char, peak_flops_per_second
from benchmarks.peers import MASKING_PROB, Shape, Step
from benchmarks.turns import Measures, compare, seconds_per_call, warmed_up_step
from configs.devices import best_device
from configs.experiment import Configs, configs_of

ANNOTATED = Shape(d_model=128, n_layers=6, n_heads=8, d_ff=256, seq_len=32, batch_size=64)
LARGER = Shape(d_model=384, n_layers=6, n_heads=6, d_ff=768, seq_len=256, batch_size=8)
ON_CUDA = [*(replace(ANNOTATED, batch_size=n) for n in (64, 1024, 4096)), replace(LARGER, batch_size=128)]
SECONDS_PER_TURN = 1.0
ADAMW = {"training.optimizer": "adamw"}
EAGER = ADAMW | {"training.compile": False}


def main(options: Namespace, path: Path) -> None:
    """Measure, print a table, and write JSON."""
    device = torch.device(best_device())
    shapes = ON_CUDA if device.type == "cuda" else [ANNOTATED, LARGER]
    groups, peaks = {}, {}
    for shape in shapes[:1] if options.quick else shapes:
        dtypes = (torch.float32, torch.bfloat16) if device.type == "cuda" else (torch.float32,)
        peaks[str(shape)] = peak = {str(dtype): peak_flops_per_second(shape, device, dtype) for dtype in dtypes}
        groups[str(shape)] = {name: candidate(name, shape, peak) for name in STEPS}
    compare(path, groups, 3 if options.quick else options.repeats, base="Folio", peak_flops_per_second=peaks)


def candidate(name: str, shape: Shape, peaks: Mapping[str, Mapping[str, float]]) -> Callable[[], Measures]:
    """The speed of about a second of steps, measured when it is called."""
    step = STEPS[name](shape)
    eager = folio(shape, **EAGER) if name.startswith("Folio") else step
    operations = flops_per_char(eager, shape)
    # labml's experiment computes in float32 everywhere, the others in the last of the types.
    peak = peaks["torch.float32"] if name == "annotated" else list(peaks.values())[-1]

    def turn() -> Measures:
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(step, 2)))
        rate = shape.chars_per_step / seconds_per_call(step, n)
        return {"characters per second": rate, "share of the peak": rate * operations / peak["own shapes"]}

    return turn


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
    return lambda: step(stage)["loss"]


def peer(step_of: Callable[[Shape, torch.Tensor, int], Step], shape: Shape) -> Step:
    """A step from benchmarks.peers on the same text."""
    data = configured(shape).data
    return step_of(shape, data.training_ids, data.vocabulary.n_tokens)


STEPS: Mapping[str, Callable[[Shape], Step]] = {
    "Folio": folio,
    "Folio with AdamW": lambda shape: folio(shape, **ADAMW),
    "annotated": partial(peer, peers.annotated),
    "Hugging Face BERT": partial(peer, partial(peers.hugging_face, "bert")),
    "Hugging Face ModernBERT": partial(peer, partial(peers.hugging_face, "modernbert")),
}


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats"}
    run_benchmark(main, {"quick": quick}, repeats=5)
