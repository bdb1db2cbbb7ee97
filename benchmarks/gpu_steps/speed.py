"""Steps that measure speed: Folio and Hugging Face's models in turns, all without dropout."""

import os
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.gpu_steps.candidate import Candidate, ask, processes, started
from benchmarks.gpu_steps.step import GPU_BASE, Step
from benchmarks.throughput import ADAMW, ANNOTATED, PEERS, shape_keys
from benchmarks.turns import Measures, in_words, take_turns
from runs.errors import first_line
from runs.files import to_json
from training.callbacks.speed import seconds_per_call

ROUNDS = 3
MUON = "Muon"
PEER_NAMES = ("BERT", "ModernBERT")
PRODUCT = "matrix product"
GIGABYTES_TO_COMPILE = 45  # of the GPU, per model
AllValues = dict[str, dict[str, Any]]  # all keys of each model, by name

COMMON = {
    "model.dropout": 0.0,
    "model.ngrams": 0,
    "masking.masking_prob": 0.15,
    "training.grad_accum_steps": 1,
}
BASE = COMMON | {"data.windows": "anywhere"} | shape_keys({}, 64, 512)
SMALL = COMMON | shape_keys(ANNOTATED, 64, 32)
RECIPES: AllValues = {
    MUON: {},
    "AdamW": ADAMW,
    **{
        name: PEERS["keys"] | PEERS["peers"][f"Hugging Face {name}"]
        for name in PEER_NAMES
    },
}


def base_models(step: Step) -> AllValues:
    """With another attention of ModernBERT, which only a GPU has: it may be its best."""
    recipes = dict(RECIPES)
    if step.device.type == "cuda":
        flex = {"model.architecture": "benchmarks/models.py:modernbert_flex"}
        recipes["ModernBERT, FlexAttention"] = recipes["ModernBERT"] | flex
    return {name: step.values(k | BASE, GPU_BASE) for name, k in recipes.items()}


def annotated_models(step: Step) -> AllValues:
    return {name: step.values(keys | SMALL) for name, keys in RECIPES.items()}


def packing_models(step: Step) -> AllValues:
    full = BASE | ADAMW
    packed = full | {"data.windows": "packed"}
    return {
        "full windows": step.values(full, GPU_BASE),
        "packed documents": step.values(packed, GPU_BASE),
    }


def compiling(step: Step) -> None:
    """Compile the models of later steps, which take the code from PyTorch's cache."""
    n_at_once = os.cpu_count() or 1
    if step.device.type == "cuda":
        memory = torch.cuda.get_device_properties(step.device).total_memory
        n_at_once = max(1, int(memory / GIGABYTES_TO_COMPILE / 1e9))
    models = base_models(step) | packing_models(step) | {"gpu": step.values({})}
    for name, values in annotated_models(step).items():
        models[f"annotated shape, {name}"] = values

    with processes(n_at_once, max_tasks_per_child=1) as pool:
        reports = {}
        for name, values in models.items():
            reports[name] = pool.submit(ask, to_json(values), "report")
        for name, report in reports.items():
            error = report.exception()
            step.add(name, first_line(error) if error else report.result())


def base(step: Step) -> None:
    """`gpu-base` with windows of 512, and its peers: speed, share of the fastest product, memory,
    and the share of Muon."""
    with started(base_models(step)) as (candidates, reports):
        speeds = measured(step, candidates, reports, product_of(step))
        fastest = speeds.pop(PRODUCT)
        for name in (MUON, "AdamW"):
            share = speeds[name] * candidates[name].ask("operations") / fastest
            step.mark(f"gpu-base, {name}: share of the fastest product", share)
        for peer in PEER_NAMES:
            ratio = speeds["AdamW"] / fastest_of(speeds, peer)
            step.mark(f"gpu-base, AdamW: speed relative to {peer}", ratio)

        ours = [candidates[name] for name in (MUON, "AdamW")]
        memory = max(candidate.ask("peak_memory") for candidate in ours)
        step.mark("gpu-base: GB of memory at the peak", memory)
        for what, value in candidates["AdamW"].ask("profile").items():
            step.add(f"AdamW: {what}", value)
        share = candidates[MUON].ask("share_of_muon")
        step.add("Muon's share of a step", f"{share:.0%}")


def annotated(step: Step) -> None:
    """The shape of the annotated experiment, and its peers."""
    with started(annotated_models(step)) as (candidates, reports):
        speeds = measured(step, candidates, reports)
        peer = fastest_of(speeds, "ModernBERT")
        for name in (MUON, "AdamW"):
            mark = f"annotated shape, {name}: speed relative to ModernBERT"
            step.mark(mark, speeds[name] / peer)
        for what, value in candidates["AdamW"].ask("profile").items():
            step.add(f"AdamW: {what}", value)


def packing(step: Step) -> None:
    """Packed documents against full windows, and against each document alone."""
    with started(packing_models(step)) as (candidates, reports):
        speeds = measured(step, candidates, reports)
        ratio = speeds["packed documents"] / speeds["full windows"]
        step.mark("packed documents: speed relative to full windows", ratio)
        difference = candidates["packed documents"].ask("difference_alone")
        step.mark("packed documents: difference from each one alone", difference)


def measured(
    step: Step,
    candidates: dict[str, Candidate],
    reports: dict[str, str],
    others: dict[str, Callable[[], Measures]] | None = None,
) -> dict[str, float]:
    """The median speeds of candidates, and of others that take turns with them."""
    for name, report in reports.items():
        step.add(f"{name}: compiled", report)
    speeds = {}
    for name, turns in take_turns(candidates | (others or {}), ROUNDS).items():
        (unit,) = turns[0]
        speeds[name] = median(turn[unit] for turn in turns)
        step.add(name, f"{in_words(speeds[name])} {unit}")
    return speeds


def fastest_of(speeds: dict[str, float], peer: str) -> float:
    """The speed of a peer with its best attention."""
    return max(speed for name, speed in speeds.items() if name.startswith(peer))


def product_of(step: Step) -> dict[str, Callable[[], Measures]]:
    """The product of two large matrices in bfloat16, as a candidate."""
    size = 256 if step.is_dry else 8_192
    x, y = torch.randn(2, size, size, device=step.device, dtype=torch.bfloat16)
    z = torch.empty_like(x)

    def multiply() -> torch.Tensor:
        return torch.mm(x, y, out=z)

    def turn() -> Measures:
        seconds_per_call(multiply, 5)  # warms up
        seconds = seconds_per_call(multiply, 20)
        return {"operations per second": 2 * size**3 / seconds}

    return {PRODUCT: turn}


def ceilings(step: Step) -> None:
    """Rates that no step can exceed, besides that of products: copies and attention."""
    size = 2_048 if step.is_dry else 2**28
    n_windows = 1 if step.is_dry else 64
    x = torch.randn(size, device=step.device)
    y = torch.empty_like(x)
    heads = torch.randn(n_windows, 12, 512, 64, device=step.device)
    heads = heads.bfloat16().requires_grad_()

    def attend() -> torch.Tensor:
        attended = F.scaled_dot_product_attention(heads, heads, heads)
        return torch.autograd.grad(attended.sum(), heads)[0]

    def rate(amount: float, call: Callable[[], torch.Tensor]) -> str:
        seconds_per_call(call, 3)  # warms up
        return in_words(amount / seconds_per_call(call, 20))

    copied = rate(2e-9 * x.nbytes, lambda: y.copy_(x))
    step.add("copies, GB per second", copied)
    # a product of [512, 64] and [64, 512] twice forward, and five times backward
    attended = rate(14e-12 * 512 * heads.numel(), attend)
    step.add("attention and its gradients, TFLOP per second", attended)
