"""A ladder of small runs: two sizes, each with three or four budgets of characters and a complete
schedule."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, groupby, product
from typing import Any, NamedTuple

from configs.command_line.command import resolve
from configs.compiled_code import kept_code
from configs.experiment import Configs, configs_of
from configs.keys import ConfigError
from configs.memory import is_out_of_memory
from data.corpus import Corpus
from planning.law import MIN_RUNS, Run
from runs.errors import InputError
from training.callbacks.callback import Callback, Row
from training.callbacks.weight_norm import dense_weights
from training.cuda_graph import EAGER_STEPS
from training.schedule import Stage
from training.step import TrainingStep

SIZES = (
    (32, 1),
    (64, 1),
    (128, 1),
    (128, 2),
    (128, 4),
    (256, 4),
    (384, 6),
    (512, 8),
    (768, 12),
    (1024, 16),
)
FEWEST_SHAPES = 3
# of the shortest run, in order of preference, which comes before that of SPACINGS
FEWEST_STEPS = (40, 20, 12)
N_SIZES = 2  # longer runs tell more than a third size
# lengths per size, and their ratios, in order of preference
SPACINGS = ((4, 3.0), (3, 3.0), (3, 2.0))
LATE = 1.5  # times the expected time, after which the longest rungs are left out
# to measure speeds: share of the ladder's time; seconds per row of stages
SHARE_TO_MEASURE, TIMED_SECONDS = 0.2, 0.3
# per run; of evaluating a character, relative to training on one
SECONDS_TO_BUILD, COST_OF_READING = 1.0, 0.4
SECONDS_TO_COMPILE = 15.0  # kept of the ladder's time, at most a quarter of it
EVALUATIONS = 10  # of the longest rung, whose curve shows how losses fall within a run
EAGER = {"training.compile": False, "training.cuda_graph": False}  # a rung is too short for either
say = partial(print, flush=True)  # shows each line at once


class Shape(NamedTuple):
    """A model and its speed."""

    keys: dict[str, int]
    n_weights: int  # outside of tables
    chars_per_second: float

    @property
    def name(self) -> str:
        return f"{self.keys['model.n_layers']} x {self.keys['model.d_model']}"


class Rung(NamedTuple):
    """A run of the ladder."""

    shape: Shape
    n_chars: int
    seconds: float  # expected, with building and one evaluation; the last rung has EVALUATIONS


def shape_keys(d_model: int, n_layers: int) -> dict[str, int]:
    """The keys of a size; d_ff and the heads follow the presets."""
    keys = {
        "d_model": d_model,
        "n_layers": n_layers,
        "d_ff": 2 * d_model,
        "n_heads": max(4, d_model // 64),
    }
    return {f"model.{name}": value for name, value in keys.items()}


def built(values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any]) -> Configs:
    """The config tree of a run on a text that is loaded already."""
    configs = configs_of(resolve(values, keys))
    configs._set_values({"data.loaded": corpus})
    return configs


def n_weights(model: Any) -> int:
    return sum(weight.numel() for weight in dense_weights(model))


def warmed_up(
    configs: Configs, report: Callable[[str], None]
) -> Iterator[tuple[TrainingStep, list[Stage]]]:
    """Yields the training step and the stages of each row of the schedule, warmed up: compiled and
    recorded as the configs say, or a report says why not. A row with windows of another length
    drops the graphs of the row before.
    """
    step, graphs = configs.step, configs.cuda_graphs
    if configs.compiled:
        configs.compiled.compile(step, configs.training.all_stages, report, kept_code(report))
    for _, stages in groupby(configs.training.all_stages, lambda stage: stage.until):
        row = list(stages)  # a stage per masking rate
        for stage in row * (EAGER_STEPS if graphs else 1):
            step(stage)["loss"].item()
        for stage in row:
            if graphs and graphs.is_due(step, stage):
                graphs.record(step, stage, report)
        yield step, row


def measured(
    values: Mapping[str, Any], corpus: Corpus, keys: dict[str, int], n_times: int = 1, **more: Any
) -> Shape:
    """A shape with its speed over the whole schedule, whose rows end at shares of the characters;
    each row is measured for `n_times` TIMED_SECONDS."""
    configs, before, seconds_per_char = built(values, corpus, keys | more), 0.0, 0.0
    for step, row in warmed_up(configs, say):
        turns, began, n_steps, seconds = cycle(row), time.perf_counter(), 0, 0.0
        while seconds < n_times * TIMED_SECONDS:
            loss, n_steps = step(next(turns))["loss"], n_steps + 1
            if n_steps & (n_steps - 1) == 0:  # to wait after each step would slow a GPU down
                loss.item()
                seconds = time.perf_counter() - began
        seconds_per_char += (row[0].until - before) * seconds / (n_steps * step.chars_per_step)
        before = row[0].until
    return Shape(keys, n_weights(configs.network), 1 / seconds_per_char)


def measured_shapes(values: Mapping[str, Any], corpus: Corpus, seconds: float) -> list[Shape]:
    """As many shapes, the smallest first, as can be measured in a share of a ladder's time."""
    shapes, times = list[Shape](), [time.monotonic()]
    for size in SIZES:
        # the next size may take twice as long
        spent, last = times[-1] - times[0], times[-1] - times[-2:][0]
        if len(shapes) >= FEWEST_SHAPES and spent + 2 * last > SHARE_TO_MEASURE * seconds:
            break
        try:
            shapes.append(measured(values, corpus, shape_keys(*size), **EAGER))
        except (ConfigError, RuntimeError, MemoryError) as error:
            if len(shapes) < FEWEST_SHAPES or not (
                isinstance(error, ConfigError) or is_out_of_memory(error)
            ):
                raise
            say(f"{size[1]} x {size[0]} and larger sizes do not fit into memory")
            break
        times.append(time.monotonic())
        say(
            f"{shapes[-1].name}: {shapes[-1].n_weights:,} weights, {shapes[-1].chars_per_second:,.0f} chars/s"
        )
    return shapes


def rungs(
    shapes: Sequence[Shape],
    seconds: float,
    chars_per_step: int,
    n_read: int,
    spent: float = 0.0,
    is_compiled: bool = False,
) -> list[Rung]:
    """The rungs, the cheapest first, that fit into `seconds`, of which `spent` seconds have passed.
    Some are kept if a model is compiled afterwards. An evaluation reads `n_read` characters.

    All sizes take the same time. They are the largest whose longest rung trains on a character per
    weight, or else the smallest. Raises InputError if not even the shortest ladder fits.
    """

    def extra(shape: Shape) -> float:
        return SECONDS_TO_BUILD + COST_OF_READING * n_read / shape.chars_per_second

    kept = min(SECONDS_TO_COMPILE, seconds / 4) if is_compiled else 0.0
    for fewest, (n_lengths, ratio) in product(FEWEST_STEPS, SPACINGS):
        shares = [ratio**i for i in range(n_lengths)]
        for first in reversed(range(len(shapes) - N_SIZES + 1)):
            found = []
            for shape in shapes[first : first + N_SIZES]:
                left = (seconds - spent - kept) / N_SIZES - n_lengths * extra(shape)
                n_steps = left * shape.chars_per_second / chars_per_step / sum(shares)
                lengths = [int(n_steps * share) * chars_per_step for share in shares]
                found += [
                    Rung(shape, n, n / shape.chars_per_second + extra(shape)) for n in lengths
                ]
            is_long = all(rung.n_chars >= fewest * chars_per_step for rung in found)
            if is_long and (first == 0 or found[-1].n_chars >= found[-1].shape.n_weights):
                return sorted(found, key=lambda rung: rung.seconds)
    n_chars = (fewest + 1) * chars_per_step * sum(shares)
    costs = (
        n_lengths * extra(shape) + n_chars / shape.chars_per_second for shape in shapes[:N_SIZES]
    )
    least = spent + N_SIZES * max(costs)
    least = min(least + SECONDS_TO_COMPILE, least / 0.75) if is_compiled else least
    needed = f"a ladder needs about {math.ceil(least)} s at these speeds"
    remedy = (
        "raise --ladder-seconds (a tenth of --seconds if it is not given), or beside other programs"
    )
    raise InputError(f"{needed}: {remedy}, try training.threads=1")


def climb(
    values: Mapping[str, Any], corpus: Corpus, ladder: Sequence[Rung]
) -> tuple[list[Run], list[Any]]:
    """Train all rungs; leave out the longest ones if the others take much longer than expected.

    Returns the runs, and the rows of the last one.
    """
    began, expected = time.monotonic(), sum(rung.seconds for rung in ladder)
    runs, rows = list[Run](), list[Any]()
    for seed, rung in enumerate(ladder, start=values["seed"]):
        if len(runs) >= MIN_RUNS and time.monotonic() - began + rung.seconds > LATE * expected:
            break
        keys = rung.shape.keys | {
            "seed": seed,
            "training.evaluations": EVALUATIONS if rung is ladder[-1] else 1,
        }
        run, rows = train(values, corpus, keys, rung.n_chars)
        runs.append(run)
        say(f"{rung.shape.name}, {rung.n_chars / 1e6:.2f} M characters: loss.valid {run.loss:.4f}")
    return runs, rows


def train(
    values: Mapping[str, Any], corpus: Corpus, keys: Mapping[str, Any], n_chars: int
) -> tuple[Run, list[Any]]:
    trainer = built(values, corpus, {**keys, "training.max_chars": n_chars, **EAGER}).trainer
    collector = RowCollector()
    trainer.callbacks = [collector]
    trainer.train()
    rows = collector.rows
    return Run(n_weights(trainer.model), trainer.chars, rows[-1]["loss.valid"]), rows


class RowCollector(Callback):
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def evaluated(self, trainer: Any, row: Row, best: Any) -> None:
        self.rows.append(row)
