"""Checks of several keys together and of keys with rows, before anything is built."""

import re
from typing import Any

from configs.branch import is_reference
from configs.keys import ConfigError, did_you_mean
from configs.strategies import STRATEGY_NAMES
from configs.tokenizers import check_tokens
from distributed.launch import n_started
from training.marks import mark_of
from training.schedule import masking_rates
from training.trackers import TRACKERS

BUDGETS = ("training.max_steps", "training.max_chars", "training.max_seconds")
ROW_KEYS = ("until", "seq_len", "masking_prob")
SHORTEST_PAIR = 5  # tokens: [CLS] A [SEP] B [SEP]
LONGEST_WINDOW = 2**20
STAGE = "{until: 1.0, seq_len: 64}"
MIXTURE = "{until: 1.0, random: 0.5, span: 0.5}"


def check(values: dict[str, Any]) -> None:
    """Raise ConfigError if values do not fit together."""
    device = values["device"]
    if not re.fullmatch(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,2}))?", device):
        raise ConfigError(
            f"device={device!r} is not a device: use auto, cpu, cuda, cuda:N or mps"
        )
    if n_started() > 1 and device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"device={device}: with torchrun, use cpu or cuda; each process takes a device of its own"
        )
    name = values["name"]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ConfigError(
            f"name={name!r} cannot name a folder: use up to 100 letters, digits, '.', '_' and '-'"
        )
    for one, other in (
        ("training.warmup", "training.decay"),
        ("masking.randomize_prob", "masking.no_change_prob"),
    ):
        if values[one] + values[other] > 1:
            raise ConfigError(
                f"{one} + {other} is above 1: both are shares of one whole"
            )
    if all(values[budget] is None for budget in BUDGETS):
        raise ConfigError(f"no budget is set: give one of {', '.join(BUDGETS)}")
    for prompt in values["sample.prompts"]:
        if not isinstance(prompt, str) or not prompt:
            raise ConfigError("sample.prompts must be a list of texts")
    d_model = values["model.d_model"]
    n_heads = values["model.n_heads"]
    if d_model % n_heads:
        raise ConfigError(
            f"model.n_heads={n_heads} does not divide model.d_model={d_model}"
        )
    _check_stages(values)
    check_tokens(values)
    _check_mixture(values)
    _check_objective(values)
    _check_windows(values)
    for mark in values["checkpoint.keep_at"]:
        try:
            mark_of(mark)
        except ValueError as error:
            raise ConfigError(f"checkpoint.keep_at: {error}") from error
    for name in values["tracking.also"]:
        if name not in tuple(TRACKERS):
            raise ConfigError(
                f"tracking.also: {name} is not one of {', '.join(TRACKERS)}"
            )
    for reference in values["callbacks"]:
        _check_reference("callbacks", reference)
    if values["data.batches"]:
        _check_reference("data.batches", values["data.batches"])


def _check_reference(key: str, value: Any) -> None:
    if not is_reference(value):
        raise ConfigError(f"{key}: {value} is not of the form file.py:name")


def _check_objective(values: dict[str, Any]) -> None:
    keys = [key for key in ("objective.nsp", "objective.sop") if values[key]]
    if len(keys) > 1:
        raise ConfigError(
            "objective.nsp and objective.sop exclude each other: choose one"
        )
    for key in keys:
        if values["data.weights"]:
            raise ConfigError(f"{key} draws its own windows: leave out data.weights")
        shortest = min(row["seq_len"] for row in values["training.stages"])
        if shortest < SHORTEST_PAIR:
            raise ConfigError(
                f"{key}: training.stages has seq_len={shortest}: [CLS] A [SEP] B [SEP] needs {SHORTEST_PAIR}"
            )


def _check_windows(values: dict[str, Any]) -> None:
    """Raise ConfigError if `data.weights` is malformed, or keys ask for windows that
    `data.sampling` does not draw."""
    rows = values["data.weights"]
    folders: list[str] = []
    shares: list[Any] = []
    for row in rows:
        if not isinstance(row, dict):
            raise ConfigError("data.weights is not of the form [books: 2, code: 1]")
        folders += map(str, row)
        shares += row.values()
    if rows:
        _check_shares("data.weights", folders, shares)
    at_random = [
        key for key in ("objective.nsp", "objective.sop", "data.weights") if values[key]
    ]
    if values["data.windows"] == "packed":
        at_random.append("data.windows=packed")
    if at_random and values["data.sampling"] != "random":
        raise ConfigError(
            f"{at_random[0]} draws windows at random: use data.sampling=random"
        )


def _check_stages(values: dict[str, Any]) -> None:
    """Raise ConfigError if `training.stages` is malformed or does not fit the other keys."""
    stages = values["training.stages"]
    if not stages:
        raise ConfigError(
            f"training.stages is empty: give at least one row, such as {STAGE}"
        )
    for number, row in enumerate(stages, start=1):
        _check_stage(f"training.stages, row {number}", row, values)
    _check_untils("training.stages", stages)


def _check_stage(where: str, row: Any, values: dict[str, Any]) -> None:
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not of the form {STAGE}")
    for key in map(str, row):
        if key not in ROW_KEYS:
            space = ": YAML needs a space after the colon" if ":" in key else ""
            hint = space or did_you_mean(key, ROW_KEYS)
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
    for key in ("until", "seq_len"):
        if key not in row:
            raise ConfigError(f"{where} has no {key}")

    rates = masking_rates(row, values["masking.masking_prob"])
    if not rates:
        raise ConfigError(
            f"{where}: masking_prob=[] is empty: give a rate, or rates that steps cycle through"
        )
    for rate in rates:
        if not is_number(rate) or not 0 < rate <= 1:
            raise ConfigError(
                f"{where}: masking_prob={rate} must be a number above 0 and at most 1"
            )

    seq_len = row["seq_len"]
    if type(seq_len) is not int or not 2 <= seq_len <= LONGEST_WINDOW:
        raise ConfigError(
            f"{where}: seq_len={seq_len} must be an integer from 2 to {LONGEST_WINDOW:,}"
        )
    chars = values["training.chars_per_step"]
    grad_accum_steps = values["training.grad_accum_steps"]
    if chars % (seq_len * grad_accum_steps * n_started()):
        raise ConfigError(
            f"{where}: training.chars_per_step={chars} is not a multiple of seq_len={seq_len}"
            f" times training.grad_accum_steps={grad_accum_steps} times {n_started()} processes"
        )


def _check_mixture(values: dict[str, Any]) -> None:
    """Raise ConfigError if `masking.mixture` is not a mixture of strategies."""
    rows = values["masking.mixture"]
    if bool(rows) != (values["masking.strategy"] == "mixture"):
        raise ConfigError(
            f"masking.strategy=mixture requires masking.mixture, such as [{MIXTURE}], and the reverse"
        )
    for number, row in enumerate(rows, start=1):
        where = f"masking.mixture, row {number}"
        if not isinstance(row, dict) or "until" not in row:
            raise ConfigError(f"{where} is not of the form {MIXTURE}")
        shares = {name: share for name, share in row.items() if name != "until"}
        for name in shares:
            if name not in STRATEGY_NAMES and not is_reference(name):
                raise ConfigError(
                    f"{where}: unknown strategy {name!r}: choose among"
                    f" {', '.join(STRATEGY_NAMES)}, or file.py:name"
                )
        _check_shares(where, list(shares), list(shares.values()))
    _check_untils("masking.mixture", rows)


def _check_shares(where: str, names: list[str], shares: list[Any]) -> None:
    """Raise ConfigError if several shares have one name, or if they cannot be added up."""
    if len(set(names)) < len(names):
        raise ConfigError(f"{where} has a name twice: {names}")
    for name, share in zip(names, shares, strict=True):
        if not is_number(share) or not 0 <= share <= 1e6:
            raise ConfigError(f"{where}: {name}={share} must be a number from 0 to 1e6")
    if not sum(shares) > 0:
        raise ConfigError(f"{where}: the shares must not all be 0")


def _check_untils(where: str, rows: list[Any]) -> None:
    """Raise ConfigError unless the rows' ends rise from above 0 to 1."""
    before = 0.0
    for number, row in enumerate(rows, start=1):
        until = row["until"]
        if not is_number(until) or not before < until <= 1:  # nan is not
            raise ConfigError(
                f"{where}, row {number}: until={until} must be a number above {before}, the end of the row"
                " before, and at most 1"
            )
        before = until
    if rows and before != 1:
        raise ConfigError(f"{where}: the last row must have until=1.0, not {before}")


def is_number(value: Any) -> bool:
    """Whether a value of YAML is a number; bool is a subclass of int."""
    return type(value) in (int, float)
