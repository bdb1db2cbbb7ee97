"""Checks of several keys together and of keys with rows, before anything is built."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from configs.branch import is_reference
from configs.keys import ConfigError, shortened
from configs.masking import STRATEGY_NAMES
from configs.tokenizers import check_tokens
from distributed.launch import n_started
from training.schedule import masking_rates

BUDGETS = ("training.max_steps", "training.max_chars", "training.max_seconds")
ROW_KEYS = ("until", "seq_len", "masking_prob")
SHORTEST_PAIR = 5  # tokens: [CLS] A [SEP] B [SEP]
LONGEST_WINDOW = 2**20
NUMBER = (int, float)  # types of YAML values; the type of true and false is bool
MIXTURE = "{until: 1.0, random: 0.5, span: 0.5}"


def check(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if values do not fit together."""
    device = values["device"]
    if not re.fullmatch(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,2}))?", device):
        raise ConfigError(
            f"device={shortened(device)!r} is not a device: use auto, cpu, cuda, cuda:N or mps"
        )
    if n_started() > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"device={device}: with torchrun, use cpu or cuda; each process takes a device of its own"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", values["name"]):
        name = shortened(values["name"])
        raise ConfigError(
            f"name={name!r} cannot name a folder: use up to 100 letters, digits, '.', '_' and '-'"
        )
    if values["training.warmup"] + values["training.decay"] > 1:
        raise ConfigError(
            "training.warmup + training.decay is above 1: both are shares of one budget"
        )
    if all(values[budget] is None for budget in BUDGETS):
        raise ConfigError(f"no budget is set: give one of {', '.join(BUDGETS)}")
    if any(not isinstance(prompt, str) or not prompt for prompt in values["sample.prompts"]):
        raise ConfigError("sample.prompts must be a list of texts")
    d_model = values["model.d_model"]
    n_heads = values["model.n_heads"]
    if d_model % n_heads:
        raise ConfigError(f"model.n_heads={n_heads} does not divide model.d_model={d_model}")
    _check_stages(values)
    check_tokens(values)
    _check_masking(values)
    _check_objective(values)
    _check_weights(values)
    for reference in values["callbacks"]:
        if not is_reference(reference):
            raise ConfigError(f"callbacks: {shortened(reference)} is not of the form file.py:name")
    if values["data.batches"] and not is_reference(values["data.batches"]):
        batches = shortened(values["data.batches"])
        raise ConfigError(f"data.batches={batches} is not of the form file.py:name")
    if values["data.within_documents"] and values["data.sampling"] != "random":
        raise ConfigError(
            "data.within_documents=true: data.sampling=shuffled cuts the whole text: use random"
        )


def _check_masking(values: Mapping[str, Any]) -> None:
    if values["masking.randomize_prob"] + values["masking.no_change_prob"] > 1:
        raise ConfigError(
            "masking.randomize_prob + masking.no_change_prob is above 1: both are shares of what is selected"
        )
    strategy = values["masking.strategy"]
    mixture = values["masking.mixture"]
    if strategy == "mixture":
        _check_mixture(mixture)
    elif mixture:
        raise ConfigError(f"masking.mixture requires masking.strategy=mixture (now {strategy})")


def _check_objective(values: Mapping[str, Any]) -> None:
    if values["objective.nsp"] and values["objective.sop"]:
        raise ConfigError("objective.nsp and objective.sop exclude each other: choose one")
    if not (values["objective.nsp"] or values["objective.sop"]):
        return
    key = "objective.nsp" if values["objective.nsp"] else "objective.sop"
    if values["data.sampling"] != "random":
        raise ConfigError(f"{key} draws pairs at random: use data.sampling=random")
    for other in ("data.within_documents", "data.weights"):
        if values[other]:
            raise ConfigError(f"{key} draws its own windows: leave out {other}")
    shortest = min(row["seq_len"] for row in values["training.stages"])
    if shortest < SHORTEST_PAIR:
        raise ConfigError(
            f"{key}: training.stages has seq_len={shortest}: [CLS] A [SEP] B [SEP] needs {SHORTEST_PAIR}"
        )


def _check_stages(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if `training.stages` is malformed or does not fit the other keys."""
    stages = values["training.stages"]
    if not stages:
        raise ConfigError(
            "training.stages is empty: give at least one row, such as {until: 1.0, seq_len: 64}"
        )
    for number, row in enumerate(stages, start=1):
        _check_stage(f"training.stages, row {number}", row, values)
    _check_untils("training.stages", stages)


def _check_mixture(rows: list[Any]) -> None:
    """Raise ConfigError if `masking.mixture` is not a mixture of strategies."""
    if not rows:
        raise ConfigError(f"masking.strategy=mixture needs masking.mixture, such as [{MIXTURE}]")
    for number, row in enumerate(rows, start=1):
        where = f"masking.mixture, row {number}"
        if not isinstance(row, dict) or type(row.get("until")) not in NUMBER:
            raise ConfigError(f"{where} is not of the form {MIXTURE}")
        shares = {name: share for name, share in row.items() if name != "until"}
        for name, share in shares.items():
            if name not in STRATEGY_NAMES and not is_reference(name):
                raise ConfigError(
                    f"{where}: unknown strategy {shortened(name)!r}: choose among"
                    f" {', '.join(STRATEGY_NAMES)}, or file.py:name"
                )
            if type(share) not in NUMBER or not 0 <= share <= 1e6:
                raise ConfigError(
                    f"{where}: {shortened(name)}={shortened(share)} must be a number from 0 to 1e6"
                )
        if not sum(shares.values()) > 0:
            raise ConfigError(f"{where}: the shares must not all be 0")
    _check_untils("masking.mixture", rows)


def _check_weights(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if `data.weights` is malformed or does not fit the other keys."""
    rows = values["data.weights"]
    folders: list[str] = []
    shares: list[Any] = []
    for row in rows:
        is_row = isinstance(row, dict)
        folders += map(str, row) if is_row else [""]
        shares += row.values() if is_row else [None]
    is_wrong = any(type(share) not in NUMBER or not 0 <= share <= 1e6 for share in shares)
    if is_wrong or len(set(folders)) < len(folders):
        raise ConfigError(
            "data.weights needs the form [books: 2, code: 1], with these spaces and numbers from 0 to 1e6"
        )
    if rows and not sum(shares) > 0:
        raise ConfigError("data.weights: the weights must not all be 0")
    if rows and values["data.sampling"] != "random":
        raise ConfigError("data.weights: data.sampling=shuffled visits the whole text: use random")


def _check_stage(where: str, row: Any, values: Mapping[str, Any]) -> None:
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

    rates = masking_rates(row, values["masking.masking_prob"])
    if not rates:
        raise ConfigError(
            f"{where}: masking_prob=[] is empty: give a rate, or rates that steps cycle through"
        )
    shares = [("until", row["until"])]
    shares += [("masking_prob", rate) for rate in rates]
    for key, share in shares:
        if type(share) not in NUMBER or not 0 < share <= 1:
            raise ConfigError(
                f"{where}: {key}={shortened(share)} must be a number above 0 and at most 1"
            )

    seq_len = row["seq_len"]
    if type(seq_len) is not int or not 2 <= seq_len <= LONGEST_WINDOW:
        raise ConfigError(
            f"{where}: seq_len={shortened(seq_len)} must be an integer from 2 to {LONGEST_WINDOW:,}"
        )
    chars = values["training.chars_per_step"]
    grad_accum_steps = values["training.grad_accum_steps"]
    if chars % (seq_len * grad_accum_steps * n_started()):
        raise ConfigError(
            f"{where}: training.chars_per_step={chars} is not a multiple of seq_len={seq_len}"
            + (
                f" times training.grad_accum_steps={grad_accum_steps}"
                if grad_accum_steps > 1
                else ""
            )
            + (f" times {n_started()} processes" if n_started() > 1 else "")
        )


def _check_untils(where: str, rows: list[Any]) -> None:
    """Raise ConfigError unless the rows' ends rise from above 0 to 1."""
    before = 0.0
    for number, row in enumerate(rows, start=1):
        until = row["until"]
        if not until > before:  # nan is not
            raise ConfigError(
                f"{where}, row {number}: until={until} must be above {before}, the end of the row before"
            )
        before = until
    if before != 1:
        raise ConfigError(f"{where}: the last row must have until=1.0, not {before}")
