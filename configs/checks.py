"""Checks of several keys together, before anything is built."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch

from configs.keys import ConfigError, shortened
from configs.masking import check_masking
from configs.memory import check_memory
from configs.rows import check_untils, is_number
from configs.tokens import check_tokens
from data.pairs import SHORTEST
from distributed.processes import n_on_machine, n_started
from runs.knobs import masking_rates

ROW_KEYS = ("until", "seq_len", "masking_prob")
BUDGETS = ("training.max_steps", "training.max_chars", "training.max_seconds")


def check(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if values do not fit together or do not fit this machine."""
    _check_device(values["device"], n_started())
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", values["name"]):
        name = shortened(values["name"])
        raise ConfigError(f"name={name!r} cannot name a folder: use up to 100 letters, digits, '.', '_' and '-'")
    if not values["logs"]:
        raise ConfigError("logs is empty: give the folder for the runs")
    if values["training.warmup"] + values["training.decay"] > 1:
        raise ConfigError("training.warmup + training.decay is above 1: both are shares of one budget")
    if not values["data.corpus"]:
        raise ConfigError("data.corpus is empty: give auto, tiny_shakespeare, or the path of a text file")
    if all(values[budget] is None for budget in BUDGETS):
        raise ConfigError(f"no budget is set: give one of {', '.join(BUDGETS)}")
    if any(not isinstance(prompt, str) or not prompt for prompt in values["sample.prompts"]):
        raise ConfigError("sample.prompts must be a list of texts")
    _check_model(values)
    _check_stages(values)
    check_tokens(values)
    check_masking(values)
    _check_objective(values)
    if values["data.within_documents"] and values["data.sampling"] != "random":
        raise ConfigError("data.within_documents=true: data.sampling=shuffled cuts the whole text: use random")
    check_memory(values)


def _check_device(device: str, n_processes: int) -> None:
    if not re.fullmatch(r"cpu|mps|cuda(:\d{1,3})?", device):
        raise ConfigError(f"device={shortened(device)!r} is not a device: use auto, cpu, cuda, cuda:N or mps")
    kind, _, number = device.partition(":")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: PyTorch found no Apple GPU; use device=cpu")
    if n_processes > 1 and (kind == "mps" or number):
        raise ConfigError(f"device={device}: with torchrun, use cpu or cuda; each process takes a device of its own")
    n_found = torch.cuda.device_count()
    if kind == "cuda" and n_processes > 1 and n_on_machine() > n_found:
        raise ConfigError(f"torchrun: PyTorch found {n_found} CUDA devices: use --nproc_per_node={n_found}")
    if kind == "cuda" and int(number or 0) >= n_found:
        raise ConfigError(f"device={device}: PyTorch found {n_found} CUDA devices, from cuda:0; use another device")


def _check_model(values: Mapping[str, Any]) -> None:
    d_model, n_heads = values["model.d_model"], values["model.n_heads"]
    if d_model % n_heads:
        raise ConfigError(f"model.n_heads={n_heads} does not divide model.d_model={d_model}")
    if values["model.architecture"] == "modern" and d_model // n_heads % 2:
        raise ConfigError(
            f"model.d_model={d_model} / model.n_heads={n_heads} is odd: rotary positions need heads of even size"
        )


def _check_objective(values: Mapping[str, Any]) -> None:
    if values["objective.nsp"] and values["objective.sop"]:
        raise ConfigError("objective.nsp and objective.sop exclude each other: choose one")
    if not (values["objective.nsp"] or values["objective.sop"]):
        return
    key = "objective.nsp" if values["objective.nsp"] else "objective.sop"
    if values["model.architecture"] == "labml_nn":
        raise ConfigError(f"{key}: model.architecture=labml_nn has no segment embeddings: use modern")
    if values["data.sampling"] != "random":
        raise ConfigError(f"{key} draws pairs at random: use data.sampling=random")
    if values["data.within_documents"]:
        raise ConfigError(f"{key} draws its own windows: use data.within_documents=false")
    shortest = min(row["seq_len"] for row in values["training.stages"])
    if shortest < SHORTEST:
        raise ConfigError(f"{key}: training.stages has seq_len={shortest}: [CLS] A [SEP] B [SEP] needs {SHORTEST}")


def _check_stages(values: Mapping[str, Any]) -> None:
    stages = values["training.stages"]
    if not stages:
        raise ConfigError("training.stages is empty: give at least one row, such as {until: 1.0, seq_len: 64}")
    for number, row in enumerate(stages, start=1):
        _check_row(f"training.stages, row {number}", row, values)
    check_untils("training.stages", [row["until"] for row in stages])


def _check_row(where: str, row: Any, values: Mapping[str, Any]) -> None:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not of the form {{until: 1.0, seq_len: 64}}")
    for key in row:
        if key not in ROW_KEYS:
            near = get_close_matches(str(key), ROW_KEYS, 1)
            hint = ": YAML needs a space after the colon" if ":" in str(key) else ""
            hint = hint or (f": did you mean {near[0]}?" if near else "")
            raise ConfigError(f"{where}: unknown key {shortened(key)!r}{hint}")
    for key in ("until", "seq_len"):
        if key not in row:
            raise ConfigError(f"{where} has no {key}")
    seq_len, rates = row["seq_len"], masking_rates(row, values["masking.masking_prob"])
    if not rates:
        raise ConfigError(f"{where}: masking_prob=[] is empty: give a rate, or rates that steps cycle through")
    for key, share in (("until", row["until"]), *(("masking_prob", rate) for rate in rates)):
        if not is_number(share) or not 0 < share <= 1:
            raise ConfigError(f"{where}: {key}={shortened(share)} must be a number above 0 and at most 1")
    longest = 5_000 if values["model.architecture"] == "labml_nn" else 2**20  # labml_nn encodes 5,000 positions
    if type(seq_len) is not int or not 2 <= seq_len <= longest:
        raise ConfigError(f"{where}: seq_len={shortened(seq_len)} must be an integer from 2 to {longest:,}")
    chars, grad_accum_steps = values["training.chars_per_step"], values["training.grad_accum_steps"]
    n_processes = n_started()
    if chars % (seq_len * grad_accum_steps * n_processes):
        raise ConfigError(
            f"{where}: training.chars_per_step={chars} is not a multiple of seq_len={seq_len}"
            + (f" times training.grad_accum_steps={grad_accum_steps}" if grad_accum_steps > 1 else "")
            + (f" times {n_processes} processes" if n_processes > 1 else "")
        )
