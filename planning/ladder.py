"""A ladder of small runs: several sizes, each trained with several numbers of characters, by complete schedules."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from torch import nn

from configs.command_line import resolve
from configs.compiled_code import kept_code
from configs.experiment import Configs, configs_of
from data.corpus import Corpus
from planning.law import MIN_RUNS, Run
from runs.callbacks import Callback
from runs.errors import InputError

SIZES = ((32, 1), (64, 1), (128, 1), (128, 2), (128, 4), (256, 4), (384, 6), (512, 8), (768, 12), (1024, 16))
COUNTS = ((3, 4), (3, 3), (2, 3))  # sizes, and lengths of each, the best first
FEWEST_STEPS = (100, 50, 25)  # of the shortest run, the best first
RATIO = 2.5  # of the characters of a rung and of the next shorter one of its size
LATE = 1.5  # times the seconds of the ladder, after which the longest rungs are left out
TIMED_SECONDS = 0.3  # per stage
SECONDS_TO_BUILD, COST_OF_READING = 1.0, 0.4  # before and after a rung: the second per character, in steps
EVALUATIONS = 10  # of the longest rung, whose curve shows how losses fall within a run


class Shape(NamedTuple):
    """A model and its speed."""

    keys: dict[str, int]
    n_weights: int  # outside of tables
    chars_per_second: float


class Rung(NamedTuple):
    """A run to make."""

    shape: Shape
    n_chars: int
    seconds: float  # its expected duration, building and evaluating included


class Climbed(NamedTuple):
    """The runs of a ladder, and the course of the longest one."""

    runs: list[Run]
    curve: list[tuple[float, float]]  # shares of the characters, and losses


def shape_keys(d_model: int, n_layers: int) -> dict[str, int]:
    """The keys of a size; d_ff and the heads follow the presets."""
    keys = {"d_model": d_model, "n_layers": n_layers, "d_ff": 2 * d_model, "n_heads": max(4, d_model // 64)}
    return {f"model.{name}": value for name, value in keys.items()}


def built(values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any]) -> Configs:
    """The config tree of a run on a text that is loaded already."""
    configs = configs_of(resolve(values, keys))
    configs._set_values({"data.loaded": corpus})
    return configs


def measured(values: Mapping[str, Any], corpus: Corpus, keys: dict[str, int], **more: Any) -> Shape:
    """A shape with its speed: the mean over the stages of the schedule."""
    configs = built(values, corpus, keys | more)
    step, stages = configs.step, configs.training.stage_rows
    if configs.compiled:
        configs.compiled.compile(step, stages, lambda line: None, kept_code(lambda line: None))
    before, speed = 0.0, 0.0
    for stage in stages:
        step(stage)["loss"].item()  # warms up
        began, n_steps = time.perf_counter(), 0
        while (seconds := time.perf_counter() - began) < TIMED_SECONDS or n_steps < 2:
            step(stage)["loss"].item()
            n_steps += 1
        speed += (stage.until - before) * n_steps * configs.training.chars_per_step / seconds
        before = stage.until
    return Shape(keys, n_weights(configs.network), speed)


def n_weights(model: nn.Module) -> int:
    """The weights outside of tables, of which a step uses few."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.EmbeddingBag)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def planned(shapes: Sequence[Shape], seconds: float, chars_per_step: int, n_read: int) -> list[Rung]:
    """The rungs that fit into some seconds, the cheapest first; each evaluation reads `n_read` characters.

    All sizes take the same time. They are the largest that train on a character per weight, or else the smallest.
    Raises InputError if not even the shortest ladder fits.
    """
    for fewest, (n_sizes, n_lengths) in product(FEWEST_STEPS, COUNTS):
        for first in reversed(range(len(shapes) - n_sizes + 1)):
            rungs = []
            for shape in shapes[first : first + n_sizes]:
                extra = SECONDS_TO_BUILD + COST_OF_READING * n_read / shape.chars_per_second
                shares = [RATIO**i for i in range(n_lengths)]
                n_chars = (seconds / n_sizes - n_lengths * extra) * shape.chars_per_second / sum(shares)
                lengths = [int(n_chars * share) // chars_per_step * chars_per_step for share in shares]
                rungs += [Rung(shape, n, n / shape.chars_per_second + extra) for n in lengths]
            is_long = all(rung.n_chars >= fewest * chars_per_step for rung in rungs)
            if is_long and (first == 0 or rungs[-1].n_chars >= rungs[-1].shape.n_weights):
                return sorted(rungs, key=lambda rung: rung.seconds)
    raise InputError(f"a ladder needs more than {seconds:.0f} s on this machine: raise --seconds or --ladder-seconds")


def climb(values: Mapping[str, Any], corpus: Corpus, rungs: Sequence[Rung], say: Callable[[str], None]) -> Climbed:
    """Train all rungs; if that takes much longer than expected, without the longest ones."""
    began, expected, runs, curve = time.monotonic(), sum(rung.seconds for rung in rungs), [], []
    for seed, rung in enumerate(rungs, start=values["seed"]):
        late = time.monotonic() - began + rung.seconds > LATE * expected
        if late and len(runs) >= MIN_RUNS:
            break
        is_last = rung is rungs[-1]
        curve = train(values | {"seed": seed}, corpus, rung.shape.keys, rung.n_chars, EVALUATIONS if is_last else 1)
        runs.append(Run(rung.shape.n_weights, rung.n_chars, curve[-1][1]))
        say(f"{named(rung.shape.keys)}, {rung.n_chars / 1e6:.2f} M characters: loss.valid {runs[-1].loss:.4f}")
    return Climbed(runs, curve)


def train(
    values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any], n_chars: int, evaluations: int = 1
) -> list[tuple[float, float]]:
    """Train without compiling and without a run folder; returns shares of the characters, and losses there."""
    budget = {"training.max_chars": n_chars, "training.evaluations": evaluations, "training.compile": False}
    trainer, rows = built(values, corpus, keys | budget).trainer, Rows()
    trainer.callbacks = [rows]
    trainer.train()
    return [(row["chars"] / n_chars, row["loss.valid"]) for row in rows.found]


class Rows(Callback):
    """Keeps the rows of a training in memory."""

    def __init__(self) -> None:
        self.found: list[Mapping[str, Any]] = []

    def evaluated(self, trainer: Any, row: Mapping[str, Any], best: Mapping[str, Any] | None) -> None:
        self.found.append(row)


def named(keys: Mapping[str, int]) -> str:
    return f"{keys['model.n_layers']} x {keys['model.d_model']}"
