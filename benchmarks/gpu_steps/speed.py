"""Steps that measure speed: Folio and Hugging Face's models in turns, all without dropout."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from benchmarks.gpu_steps.candidate import Candidate
from benchmarks.gpu_steps.step import GPU, GPU_BASE, Step
from benchmarks.throughput import ADAMW, ANNOTATED, RECIPES, shape_keys
from benchmarks.turns import Measures, in_words, take_turns
from runs.errors import first_line
from training.callbacks.speed import seconds_per_call

ROUNDS = 3
PRODUCT = "matrix product"
FULL = "full windows"
PACKED = "packed documents"
BASE_SHAPE = shape_keys({}, 64, 512)
COMMON = {
    "model.dropout": 0.0,
    "model.ngrams": 0,
    "masking.masking_prob": 0.15,
    "training.grad_accum_steps": 1,
    "training.activation_checkpointing": False,
}
WITH_FLEX = " with FlexAttention"
MODERNBERT = RECIPES["Hugging Face ModernBERT"]
MODELS: dict[str, dict[str, Any]] = {
    "Muon": {},
    "AdamW": ADAMW,
    "BERT": RECIPES["Hugging Face BERT"],
    "ModernBERT": MODERNBERT,
}
# for windows that are longer than those that its layers see
VARIANTS = {
    f"ModernBERT{WITH_FLEX}": MODERNBERT
    | {"model.architecture": "benchmarks/models.py:modernbert_with_flex_attention"},
}
AllValues = dict[str, dict[str, Any]]  # all keys of each model, by name


def base_models(step: Step) -> AllValues:
    shape = COMMON | BASE_SHAPE | {"data.windows": "anywhere"}
    models = {}
    for name, keys in (MODELS | VARIANTS).items():
        models[f"gpu-base, {name}"] = step.values(keys | shape, GPU_BASE)
    return models


def annotated_models(step: Step) -> AllValues:
    shape = COMMON | shape_keys(ANNOTATED, 64, 32)
    models = {}
    for name, keys in MODELS.items():
        models[f"annotated shape, {name}"] = step.values(keys | shape)
    return models


def packing_models(step: Step) -> AllValues:
    keys = COMMON | BASE_SHAPE | ADAMW
    full = keys | {"data.windows": "anywhere"}
    packed = keys | {"data.windows": "packed"}
    return {
        FULL: step.values(full, GPU_BASE),
        PACKED: step.values(packed, GPU_BASE),
    }


def compiling(step: Step) -> None:
    """Compile the models of later steps, which take the code from PyTorch's cache."""
    groups = [base_models(step)]
    if not step.is_dry:
        small = annotated_models(step) | {GPU: step.values({})}
        groups.append(packing_models(step) | small)
    for models in groups:
        for candidate in candidates(step, models).values():
            candidate.pool.shutdown()


def base(step: Step) -> None:
    """`gpu-base` with windows of 512, and its peers: speed, share of the fastest product, memory,
    and the share of Muon."""
    models = candidates(step, base_models(step))
    speeds = measured(step, models | {PRODUCT: product(step)})
    muon = models["gpu-base, Muon"]
    adamw = models["gpu-base, AdamW"]
    operations = adamw.ask("operations")
    for name in ("gpu-base, Muon", "gpu-base, AdamW"):
        share = speeds[name] * operations / speeds[PRODUCT]
        step.mark(f"{name}: share of the fastest product", share)
    for peer in ("BERT", "ModernBERT"):
        add_ratio(step, speeds, "gpu-base", "AdamW", peer)
    memory = max(muon.ask("peak_memory"), adamw.ask("peak_memory"))
    step.mark("gpu-base: GB of memory at the peak", memory)
    adamw.ask("print_profile")
    share = muon.ask("share_of_muon")
    step.add("Muon's share of a step", f"{share:.0%}")


def annotated(step: Step) -> None:
    """The shape of the annotated experiment, and its peers."""
    models = candidates(step, annotated_models(step))
    speeds = measured(step, models)
    for name in ("Muon", "AdamW"):
        add_ratio(step, speeds, "annotated shape", name, "ModernBERT")
    models["annotated shape, AdamW"].ask("print_profile")


def packing(step: Step) -> None:
    """Packed documents against full windows, and against each document alone."""
    models = candidates(step, packing_models(step))
    speeds = measured(step, models)
    ratio = speeds[PACKED] / speeds[FULL]
    step.mark("packed documents: speed relative to full windows", ratio)
    difference = models[PACKED].ask("difference_alone")
    step.mark("packed documents: difference from each one alone", difference)


def candidates(step: Step, all_values: AllValues) -> dict[str, Candidate]:
    """Models that have been built side by side; one that fails is left out. A step fails if one
    trains without compiled code or without CUDA graphs, unless it is a variant of another."""
    started = {name: Candidate(values) for name, values in all_values.items()}
    for name, candidate in list(started.items()):
        error = candidate.report.exception()
        report = first_line(error) if error else candidate.report.result()
        is_whole = "training without" not in report
        if error or (name.endswith(WITH_FLEX) and not is_whole):
            step.add(name, f"not measured: {report}")
            candidate.pool.shutdown()
            del started[name]
        else:
            step.add(f"{name}: compiled", report, is_whole)
    return started


def measured(
    step: Step, models: Mapping[str, Callable[[], Measures]]
) -> dict[str, float]:
    """The median speeds of models that take turns."""
    speeds = {}
    for name, turns in take_turns(models, ROUNDS).items():
        (unit,) = turns[0]
        speeds[name] = median(turn[unit] for turn in turns)
        step.add(name, f"{in_words(speeds[name])} {unit}")
    return speeds


def add_ratio(
    step: Step, speeds: dict[str, float], shape: str, name: str, peer: str
) -> None:
    """Mark the speed of a model relative to that of a peer with its fastest attention, if that was
    measured."""
    of_peer = [
        speed for each, speed in speeds.items() if each.startswith(f"{shape}, {peer}")
    ]
    if of_peer:
        ratio = speeds[f"{shape}, {name}"] / max(of_peer)
        step.mark(f"{shape}, {name}: speed relative to {peer}", ratio)


def product(step: Step) -> Callable[[], Measures]:
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

    return turn
