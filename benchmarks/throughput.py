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
from configs.experiment import configs_of
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
    model = Model(values_of(keys), report)
    training = model.configs.training
    precision = torch.bfloat16 if training.autocast else torch.float32
    network = model.configs.network
    fastest = peak(network, training.chars_per_step, model.device, precision)
    of_peak = model.operations() / fastest

    def turn() -> Measures:
        rate = model.tokens_per_second()
        return {"characters per second": rate, "share of the peak": rate * of_peak}

    return turn


def values_of(keys: dict[str, Any]) -> dict[str, Any]:
    """The preset of this machine's device with `keys`, and with what all have in common."""
    preset = read_config(PRESETS / f"{device_preset()}.yaml")
    common = {"model.ngrams": 0, "masking.masking_prob": 0.15}
    return resolve(preset, {"data.corpus": "tiny_shakespeare", **keys, **common})


class Model:
    """A model with a warmed-up training step."""

    def __init__(self, values: dict[str, Any], report: Callable[[str], None] = print):
        self.configs = configs_of(values)
        *_, (self.step, stages) = warmed_up(self.configs, report)
        self.stage = stages[-1]
        self.device = self.configs.torch_device

    def take(self) -> torch.Tensor:
        """Take a step; returns the loss, on the device."""
        return self.step(self.stage)["loss"]

    def tokens_per_second(self) -> float:
        """The mean over about a second of steps. Padding does not count."""
        n = max(1, round(SECONDS_PER_TURN / seconds_per_call(self.take, 2)))
        mask = self.step.draw(self.stage)[0].attention_mask
        filled = 1.0 if mask is None else (mask != 0).float().mean().item()
        return filled * self.step.chars_per_step / seconds_per_call(self.take, n)

    def operations(self) -> float:
        """Operations per token of the matrix products, forward and backward."""
        seq_len = self.stage.seq_len
        n_masked = n_masked_in(seq_len, self.stage.masking_prob)
        network = self.configs.network
        return operations_per_char(network, seq_len, n_masked, self.device)


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "only the annotated shape, 3 repeats"}
    run_benchmark(main, repeats=5, quick=quick)
