"""Characters per second: Folio's training step, the annotated experiment's, and Hugging Face's BERT
and ModernBERT.

python -m benchmarks.throughput [--repeats 5 | --quick]

All take turns in one process, with the same shape, text, masking rate and training step; the model,
the masker, the optimizer and the precision are their own. Logits are computed at the masked
positions only, which is in favor of the annotated experiment and of BERT. The share of the peak is
that of `training.callbacks.speed`.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.command import device_preset, recipe, run_benchmark
from benchmarks.turns import Measures, compare
from configs.command_line.command import PRESETS, read_config, resolve
from configs.experiment import Configs, configs_of
from data.masking import n_masked_in
from planning.ladder import EAGER, warmed_up
from training.callbacks.speed import operations_per_char, peak, seconds_per_call

ANNOTATED = {
    "model.d_model": 128,
    "model.n_layers": 6,
    "model.n_heads": 8,
    "model.d_ff": 256,
}
LARGER = {
    "model.d_model": 384,
    "model.n_layers": 6,
    "model.n_heads": 6,
    "model.d_ff": 768,
}
# sizes of the model, windows per step, characters per window
SHAPES = [(ANNOTATED, 64, 32), (LARGER, 8, 256)]
SECONDS_PER_TURN = 1.0
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
    # lines about compiling, for example why a step is not compiled or recorded
    slower: list[str] = []
    groups = {}

    for sizes, n_windows, seq_len in SHAPES[:1] if options.quick else SHAPES:
        keys_of_shape = shape_keys(sizes, n_windows, seq_len)
        groups[shape_name(sizes, n_windows, seq_len)] = {
            variant: candidate(keys | keys_of_shape, slower.append)
            for variant, keys in RECIPES.items()
        }

    compare(
        path,
        groups,
        3 if options.quick else options.repeats,
        base="Folio",
        slower=slower,
    )


def shape_name(sizes: Mapping[str, int], n_windows: int, seq_len: int) -> str:
    size = f"{sizes['model.n_layers']} layers of {sizes['model.d_model']}"
    return f"{size}, {n_windows} x {seq_len}"


def shape_keys(
    sizes: Mapping[str, int], n_windows: int, seq_len: int
) -> dict[str, Any]:
    return {
        **sizes,
        "training.chars_per_step": n_windows * seq_len,
        "training.stages": [{"until": 1.0, "seq_len": seq_len}],
    }


def candidate(
    keys: dict[str, Any], report: Callable[[str], None]
) -> Callable[[], Measures]:
    """The speed of about a second of steps, measured when it is called."""
    configs = configured(keys)
    step = warmed_up_step(configs, report)
    network = configs.network
    device = configs.torch_device
    n_chars = configs.training.chars_per_step
    (stage,) = configs.training.all_stages
    n_masked = n_masked_in(stage.seq_len, stage.masking_prob)
    operations = operations_per_char(network, stage.seq_len, n_masked, device)
    precision = torch.bfloat16 if configs.training.autocast else torch.float32
    of_peak = operations / peak(network, n_chars, device, precision)

    def turn() -> Measures:
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(step, 2)))
        rate = n_chars / seconds_per_call(step, n)
        return {"characters per second": rate, "share of the peak": rate * of_peak}

    return turn


def configured(keys: dict[str, Any]) -> Configs:
    """The preset of this machine's device with `keys`, and with what all have in common."""
    preset = read_config(PRESETS / f"{device_preset()}.yaml")
    common = {"model.ngrams": 0, "masking.masking_prob": 0.15}
    return configs_of(
        resolve(preset, {"data.corpus": "tiny_shakespeare", **keys, **common})
    )


def warmed_up_step(
    configs: Configs, report: Callable[[str], None] = print
) -> Callable[[], torch.Tensor]:
    """A function that takes a warmed-up step of the only stage and returns the loss, on the device."""
    ((step, (stage,)),) = warmed_up(configs, report)
    return lambda: step(stage)["loss"]


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats"}
    run_benchmark(main, repeats=5, quick=quick)
