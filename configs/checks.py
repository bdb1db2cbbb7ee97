"""Checks of several keys together, before anything is built and before PyTorch is imported."""

import re
from collections.abc import Mapping
from typing import Any

from configs.keys import ConfigError, option_names, shortened
from configs.masking import MaskingConfigs
from configs.rows import check_mixture, check_stages, check_weights
from configs.tokenizers import check_tokens
from distributed.launch import n_started
from runs.schema import matches

BUDGETS = ("training.max_steps", "training.max_chars", "training.max_seconds")


def check(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if values do not fit together."""
    device = values["device"]
    if not re.fullmatch(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,2}))?", device):
        raise ConfigError(f"device={shortened(device)!r} is not a device: use auto, cpu, cuda, cuda:N or mps")
    if n_started() > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={device}: with torchrun, use cpu or cuda; each process takes a device of its own")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", values["name"]):
        name = shortened(values["name"])
        raise ConfigError(f"name={name!r} cannot name a folder: use up to 100 letters, digits, '.', '_' and '-'")
    if values["training.warmup"] + values["training.decay"] > 1:
        raise ConfigError("training.warmup + training.decay is above 1: both are shares of one budget")
    if all(values[budget] is None for budget in BUDGETS):
        raise ConfigError(f"no budget is set: give one of {', '.join(BUDGETS)}")
    if any(not isinstance(prompt, str) or not prompt for prompt in values["sample.prompts"]):
        raise ConfigError("sample.prompts must be a list of texts")
    d_model, n_heads = values["model.d_model"], values["model.n_heads"]
    if d_model % n_heads:
        raise ConfigError(f"model.n_heads={n_heads} does not divide model.d_model={d_model}")
    if values["model.architecture"] == "modern" and d_model // n_heads % 2:
        raise ConfigError(
            f"model.d_model={d_model} / model.n_heads={n_heads} is odd: rotary positions need heads of even size"
        )
    if values["model.architecture"] == "labml_nn" and d_model % 2:
        raise ConfigError(f"model.d_model={d_model} is odd: the positions of model.architecture=labml_nn need pairs")
    if not matches(values["plan.curve"], [dict.fromkeys(("chars", "low", "loss", "high"), float)]):
        raise ConfigError("plan.curve must be a list of rows {chars, low, loss, high}, as plan.py writes it")
    check_stages(values)
    check_tokens(values)
    _check_masking(values)
    _check_objective(values)
    check_weights(values)
    if values["data.within_documents"] and values["data.sampling"] != "random":
        raise ConfigError("data.within_documents=true: data.sampling=shuffled cuts the whole text: use random")


def _check_masking(values: Mapping[str, Any]) -> None:
    if values["masking.randomize_prob"] + values["masking.no_change_prob"] > 1:
        raise ConfigError(
            "masking.randomize_prob + masking.no_change_prob is above 1: both are shares of what is selected"
        )
    strategy, mixture = values["masking.strategy"], values["masking.mixture"]
    if strategy == "labml_nn":
        _check_labml_nn(values)
    if strategy == "mixture":
        check_mixture(mixture, option_names(MaskingConfigs, "strategy").keys() - {"mixture", "labml_nn"})
    elif mixture:
        raise ConfigError(f"masking.mixture requires masking.strategy=mixture (now {strategy})")


def _check_labml_nn(values: Mapping[str, Any]) -> None:
    if n_started() > 1:
        raise ConfigError("masking.strategy=labml_nn draws masks that processes cannot share: use random")
    only = {"masking.random_tokens": "uniform", "masking.masks": "dynamic", "masking.corrupt": "character"}
    for key, value in only.items():
        if values[key] != value:
            raise ConfigError(f"{key}={values[key]}: masking.strategy=labml_nn supports {value} only")


def _check_objective(values: Mapping[str, Any]) -> None:
    if values["objective.nsp"] and values["objective.sop"]:
        raise ConfigError("objective.nsp and objective.sop exclude each other: choose one")
    if not (values["objective.nsp"] or values["objective.sop"]):
        return
    from data.pairs import SHORTEST

    key = "objective.nsp" if values["objective.nsp"] else "objective.sop"
    if values["model.architecture"] == "labml_nn":
        raise ConfigError(f"{key}: model.architecture=labml_nn has no segment embeddings: use modern")
    if values["data.sampling"] != "random":
        raise ConfigError(f"{key} draws pairs at random: use data.sampling=random")
    for other in ("data.within_documents", "data.weights"):
        if values[other]:
            raise ConfigError(f"{key} draws its own windows: leave out {other}")
    shortest = min(row["seq_len"] for row in values["training.stages"])
    if shortest < SHORTEST:
        raise ConfigError(f"{key}: training.stages has seq_len={shortest}: [CLS] A [SEP] B [SEP] needs {SHORTEST}")
