"""The card of a run for a paper: one page of Markdown with its figure, its losses, and what may be
claimed with them."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from configs.command_line.command import DEFAULTS, ignored_in_comparisons
from configs.keys import ConfigError
from runs.files import to_yaml, write_atomically
from runs.find import all_runs
from runs.run_folder import RunFolder, RunFolderError
from runs.schema import read_content, read_object
from runs.statistics import CONFIDENCE, standard_error, t_quantile, with_error
from trained.load import load
from trained.model_card import (
    best_row,
    code,
    command,
    losses_of,
    n_weights,
    plain,
    source_of,
    without_folders,
)
from training.checkpoint import load_last


def write_card(run: RunFolder) -> Path:
    """Write card.md into the folder of a run; returns its path. Raises InputError."""
    if run.suffix:
        raise ConfigError(f"--card is about a whole run: use {run.path.name}")
    path = run.path / "card.md"
    about = run.about()
    _, texts = source_of(run)
    sections = {
        "Result": f"![curves]({run.curves_path.name})\n\n{losses_of(run)}\n\nOther losses:\n\n{measures_of(run)}",
        "Claims": claims(run),
        "Keys that differ from the defaults": keys_of(run),
        "Data": texts,
        "Machine and code": f"{environment_of(run)}\n- command: {code(command(run))}",
    }
    parts = [f"## {title}\n\n{text.strip()}\n" for title, text in sections.items()]
    title = f"# {plain(about['name'])}: run {code(run.path.name)}\n"
    write_atomically(path, "\n".join([title, *parts]).encode())
    return path


def measures_of(run: RunFolder) -> str:
    """The reference losses, and the any-order bound if evaluate.py has measured it."""
    lines = [
        f"- {name}: {loss:.4f} nats" for name, loss in run.reference_lines().items()
    ]
    path = run.path / "evaluation.json"
    if path.exists():
        bound = read_object(path, {"bound": {"nats": float}})["bound"]
        loss = with_error(f"{bound['nats']:.4f}", bound["stderr"])
        lines.append(f"- any-order bound: {loss} nats")
    return "\n".join(lines)


def claims(run: RunFolder) -> str:
    """The losses of all runs that differ from this one in their seed only, and what they tell."""
    losses = losses_by_seed(run)
    n = len(losses)
    seeds = ", ".join(map(str, losses))
    chosen = (
        "The best weights were chosen by the validation text, so their loss on other text of the same"
        " source may be slightly higher."
    )
    if n < 2:
        config = os.path.relpath(run.path / "config.yaml")
        seed = run.config()["seed"] + 1
        return f"""\
Finished runs with these keys in the same logs: {n} (seeds: {seeds or "none"}). The standard error above is over
windows of text, for these weights. {chosen}

- It may be claimed that these weights have this loss on this text, by this protocol.
- It may not be claimed that these keys lead to this loss, or to a lower one than other keys: another seed may differ
  by more than the standard error. `python experiment.py --config {config} --seeds 3 seed={seed}` trains more runs."""

    values = np.array(list(losses.values()))
    t = t_quantile(CONFIDENCE, n - 1)
    deviation = float(values.std(ddof=1))
    margin = t * (standard_error(values) or 0.0)
    further = t * deviation * math.sqrt(1 + 1 / n)
    least = t_quantile(CONFIDENCE, 2 * n - 2) * deviation * math.sqrt(2 / n)
    return f"""\
{n} finished runs differ in their seed only (seeds: {seeds}). Their mean `loss.valid` is {values.mean():.4f} nats, the
standard deviation over seeds {deviation:.4f}. {chosen}

- It may be claimed that these keys lead to a mean loss of {values.mean():.4f} ± {margin:.4f} on this text (95% interval
  over seeds, Student's t), and one further seed to a loss within ± {further:.4f} of it.
- It may be claimed that these keys are better or worse than others if `python evaluate.py` with all runs of both says
  so. With as many seeds and as much spread on the other side, a difference below {least:.4f} is a tie.
- It may not be claimed for other texts, budgets or sizes."""


def losses_by_seed(run: RunFolder) -> dict[int, float]:
    """The losses of the finished runs in the same logs with the same keys, text and own code, by
    their seeds."""
    losses = dict[int, float]()
    for other in [run, *all_runs(run.path.parents[1])]:
        with suppress(RunFolderError):  # a run that cannot be read
            best = best_row(other)
            is_finished = other.status()["status"] == "completed" and best
            if is_finished and settings_of(other) == settings_of(run):
                losses.setdefault(other.config()["seed"], best["loss.valid"])
    return dict(sorted(losses.items()))


def settings_of(run: RunFolder) -> tuple[Any, ...]:
    """Everything that repeats of a run have in common."""
    config = DEFAULTS | run.config()
    shared = config.keys() - ignored_in_comparisons() - {"data.corpus"}
    keys = {key: config[key] for key in shared}
    return keys, run.corpus()["sha256"], run.code()


def keys_of(run: RunFolder) -> str:
    """The keys of a run with other values than the defaults, as a table."""
    lines = ["| key | value | default |", "|---|---|---|"]
    for key, value in run.config().items():
        default = DEFAULTS.get(key)
        if value != default and key not in ("logs", "data.corpus"):
            cells = [code(shown(each)).replace("|", "\\|") for each in (value, default)]
            lines.append(f"| {plain(key)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    return without_folders(to_yaml(value, in_one_line=True))


def environment_of(run: RunFolder) -> str:
    """The number of weights, the machine, from the last checkpoint, and the commit of the code, from
    labml's file. Raises InputError."""
    machine = load_last(run.checkpoints).state["callbacks"]["run"]["environment"]
    facts = {"weights": f"{n_weights(load(run).model):,}", **machine}
    path = run.path / "run.yaml"
    if path.exists():
        labels = yaml.safe_load(read_content(path))
        dirty = ", with the changes in source.diff" if labels["is_dirty"] else ""
        facts["commit"] = f"{labels['commit']}{dirty}"
    return "\n".join(f"- {name}: {plain(str(value))}" for name, value in facts.items())
