"""The figures of docs/scale.md follow from the code, the presets and the recorded benchmarks."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from configs.command_line.command import PRESETS, read_config, resolve
from model.modern import Layer, rotary_table
from runs.files import ROOT
from tests.conftest import configs_for
from tests.distributed.steps import new_memory
from training.checkpoint import Content
from training.undo import optimize_or_undo

PAGE = " ".join((ROOT / "docs" / "scale.md").read_text().split())
RECORDED = ROOT / "benchmarks" / "results"
TEXTS = "amd-epyc-2-cores/large_text"
SPEED = "characters per second"
KINDS = ("characters", "bpe:8192")
H200 = 989e12  # operations per second
# layers, d_model, d_ff, window
MODELS = [(6, 384, 768, 256), (12, 768, 1_152, 512), (24, 2_048, 2_816, 512)]


def recorded(name, row, column):
    table = json.loads((RECORDED / f"{name}.json").read_text())["table"]
    return float(
        next(each for each in table if each[""] == row)[column].replace(",", "")
    )


def operations(n_layers, d, d_ff, length):
    return 3 * n_layers * (2 * (4 * d**2 + 3 * d * d_ff) + 4 * length * d)


def weights(n_layers, d, d_ff, _):
    return n_layers * (4 * d**2 + 3 * d * d_ff)


def attention(query, key, value, mask, dropout):
    return F.scaled_dot_product_attention(query, key, value, mask, dropout)


def says(*figures):
    assert [figure for figure in figures if figure not in PAGE] == []


def test_operations():
    length = 32
    layer = Layer(64, 2, 96, dropout=0.0, is_first=False).to("meta")
    x = torch.zeros(1, length, 64, device="meta", requires_grad=True)
    with (
        FlopCounterMode(display=False) as counted,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        layer(x, rotary_table(length, 32, x.device)).sum().backward()

    assert counted.get_total_flops() == operations(1, 64, 96, length) * length


def kept_by(layer, x):
    """The bytes of activations that a layer keeps for backward."""
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = layer(x, rotary_table(x.shape[1], 32))
    assert y.requires_grad

    return sum(storage.nbytes() for storage in kept.values())


def test_one_gpu():
    keys = resolve(read_config(PRESETS / "gpu-base.yaml"), {"device": "cpu"})
    shape = tuple(keys[f"model.{name}"] for name in ("n_layers", "d_model", "d_ff"))
    assert (*shape, 512) == MODELS[1]
    assert {row["seq_len"] for row in keys["training.stages"]} == {512}

    n_layers, d, d_ff = shape
    n_tokens = keys["training.max_chars"]
    step = keys["training.chars_per_step"]
    vocabulary = int(keys["data.tokens"].removeprefix("bpe:"))
    ends = [0, *(row["until"] for row in keys["training.stages"])]
    rates = [row["masking_prob"] for row in keys["training.stages"]]
    rate = sum(np.diff(ends) * rates)
    head = 6 * rate * (d**2 + d * vocabulary)
    others = d**2 + d * vocabulary
    says(
        f"{(weights(*MODELS[1]) + others) / 1e6:.0f} M parameters",
        f"in {n_tokens // step:,} steps of {step:,}",
        f"{rate:.0%} of all on average, add {head / 1e6:.0f} M operations",
    )
    seconds = n_tokens * (operations(*MODELS[1]) + head) / H200
    says(f"takes {seconds / 0.3 / 3_600:.0f} to {seconds / 0.1 / 3_600:.0f} hours")

    batch = step // keys["training.grad_accum_steps"]
    states = 12 * weights(*MODELS[1]) + 16 * others
    kept = 24 * d + 8 * d_ff
    per_layer = batch * kept / 1e9
    says(
        f"{states / 1e9:.1f} GB for weights, gradients and states",
        f"24 d + 8 d_ff bytes per token and layer for backward, {n_layers * per_layer:.1f} GB",
        f"{n_layers * batch * 4 * d / 1e9:.1f} GB, and {per_layer:.1f} GB for one layer",
    )


def test_what_a_layer_keeps(monkeypatch):
    """On a CPU, autocast would skip attention."""
    monkeypatch.setattr("model.modern.mix", attention)
    layer = Layer(64, 2, 96, 0.0, is_first=False)
    x = torch.randn(16, 128, 64, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        n_bytes = kept_by(layer, x)

    # the rest are copies of weights in bfloat16, and rows of norms and of attention
    copies = 2 * weights(1, 64, 96, 128)
    assert n_bytes - copies == pytest.approx(16 * 128 * (24 * 64 + 8 * 96), rel=0.05)


def test_hours():
    per_char = [operations(*shape) for shape in MODELS]
    rate = (
        recorded(
            "amd-epyc-2-cores/throughput", "6 layers of 384, 8 x 256: Folio", SPEED
        )
        * per_char[0]
    )
    says(f"{rate / 1e9:.0f} billion operations per second")
    for n, unit, name in zip(
        per_char, (60, 60, 3_600), ("minutes", "minutes", "hours"), strict=True
    ):
        # seconds for a billion characters
        low = 1e9 * n / H200 / 0.3
        high = 1e9 * n / H200 / 0.1
        row = f"| {n / 1e6:,.0f} M | {1e9 * n / rate / 3_600:,.0f} hours | {low / unit:.0f} to {high / unit:.0f} {name}"
        says(
            row
            + f" | {low / 3.6:,.0f} to {high / 3.6:,.0f} | {low / 230.4:.0f} to {high / 230.4:.0f} hours"
        )

    says(
        f"{3.57e6 * per_char[0] / H200:.0%} on an H200 (3.57 million characters per second"
    )
    slow, fast = (
        recorded(TEXTS, f"reader: windows of {n} x 256", f"{SPEED}, not cached")
        for n in (8, 256)
    )
    for n, digits, model in (
        (per_char[0], 1, "H200s with the preset"),
        (per_char[-1], 0, "with the largest model"),
    ):
        says(
            f"{slow * n / H200 / 0.3:.{digits}f} to {fast * n / H200 / 0.1:.{digits}f} {model}"
        )

    says(f"{1e12 / fast / 3_600:.0f} hours, whatever the model")
    step = 32_768 * per_char[-1] / H200
    says(
        f"in {8 * weights(*MODELS[-1]) / 50e9:.2f} s",
        f"{step / 0.3:.1f} to {step / 0.1:.1f} s there",
    )


def test_memory(tmp_path):
    c = configs_for("play", model__d_model=64, model__n_layers=8)
    c.trainer.training_step(c.training.all_stages[0])
    _, muon = c.update.optimizers
    matrices = muon.param_groups[0]["params"]
    for matrix in c.network.parameters():
        matrix.grad = torch.ones_like(matrix)

    n = sum(matrix.numel() for matrix in matrices)
    n_others = sum(p.numel() for p in c.network.parameters()) - n
    kept = [
        *matrices,
        *(m.grad for m in matrices),
        *(muon.state[m]["momentum_buffer"] for m in matrices),
    ]
    without_undo = new_memory(muon.step)
    undo = (
        new_memory(lambda: optimize_or_undo([muon], torch.tensor(True))) - without_undo
    )

    assert sum(each.nbytes for each in kept) == 12 * n
    assert undo < matrices[0].nbytes  # no copy

    sizes = ["12 bytes"] + [f"{12 * weights(*shape) / 1e9:.2g} GB" for shape in MODELS]
    says(
        " | ".join(sizes),
        " | ".join(
            ["8 bytes"] + [f"{8 * weights(*shape) / 1e9:.2g} GB" for shape in MODELS]
        ),
    )
    says(
        f"12/64 bytes | | | {12 * weights(*MODELS[-1]) / 64e9:.2f} GB",
        f"({12 * 100 / 64:.0f} GB each on 64 devices)",
    )
    Content.of(c.network.state_dict(), c.trainer.state_dict()).save(tmp_path / "last")

    assert (tmp_path / "last").stat().st_size == pytest.approx(
        8 * n + 12 * n_others, rel=0.05
    )

    says(
        f"{28 * weights(*MODELS[-1]) / 1e9:.0f} GB for 0.8 G parameters, {3 * 8 + 4} bytes per parameter"
    )
    gpu = resolve(read_config(PRESETS / "gpu.yaml"), {"device": "cpu"})
    says(
        f"which is {8 * gpu['model.ngram_rows'] * gpu['model.d_model'] / 1e9:.1f} GB for the preset `gpu`"
    )


def test_storage_and_conversion():
    assert [np.min_scalar_type(n - 1).itemsize for n in (256, 257, 8_192)] == [1, 2, 2]

    characters, bpe = (
        recorded(TEXTS, f"conversion: {kind}", "MB per second") for kind in KINDS
    )
    says(f"| {1e3 / characters:.0f} seconds | {1e6 / characters / 3_600:.1f} hours |")
    says(f"| {1e3 / bpe / 60:.1f} minutes | {1e6 / bpe / 86_400:.1f} days |")
