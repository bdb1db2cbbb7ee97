"""Ladders fit into their time."""

import re
from argparse import Namespace
from itertools import pairwise, product

import pytest
import torch

from configs.command_line.command import resolve
from configs.keys import ConfigError
from data.corpus import load_corpus
from planning import ladder
from planning.ladder import (
    SIZES,
    Rung,
    Shape,
    choose_threads,
    climb,
    measured,
    measured_shapes,
    rungs,
    shape_keys,
)
from planning.law import MIN_RUNS
from tests.conftest import TINY, dotted, one_line
from training.callbacks import threads
from training.callbacks.health_checks import HealthCheckError
from training.schedule import Stage

STEP = 2_048
VALUES = {
    "training.chars_per_step": STEP,
    "training.compile": False,
    "training.threads": 0,
    "device": "cpu",
}


def ladder_of(speed, seconds, spent=0.0, **keys):
    """The rungs of shapes whose speed falls with their weights."""
    shapes = []
    for i, size in enumerate(SIZES[:4]):
        shapes.append(Shape(shape_keys(*size), 10_000 * 4**i, speed / 2**i))

    return rungs(shapes, seconds, VALUES | dotted(keys), 100_000, spent)


def sizes_of(planned):
    return {rung.shape.n_weights for rung in planned}


@pytest.mark.parametrize(
    ("speed", "seconds"),
    [
        (80_000, 60),
        (25_000, 60),
        (80_000, 360),
        (300_000, 60),
        (5_000_000, 600),
        (30_000, 3_600),
    ],
)
def test_a_ladder_takes_its_time(speed, seconds):
    planned = ladder_of(speed, seconds)
    costs = [rung.seconds for rung in planned]

    assert 0.8 * seconds < sum(costs) <= seconds
    assert costs == sorted(costs)
    assert len(planned) >= MIN_RUNS
    assert len(sizes_of(planned)) >= 2

    for rung in planned:
        assert rung.n_chars % STEP == 0
        assert rung.n_chars >= 12 * STEP


def test_a_ladder_with_enough_time_has_two_sizes_and_four_lengths():
    planned = ladder_of(80_000, 360)
    assert len(planned) == 8

    for n_weights in sizes_of(planned):
        of_size = [rung for rung in planned if rung.shape.n_weights == n_weights]
        lengths = [rung.n_chars for rung in of_size]
        factors = [b / a for a, b in pairwise(lengths)]

        assert factors == pytest.approx([3, 3, 3], rel=0.05)


@pytest.mark.parametrize(("seconds", "kept"), [(360, 15), (40, 10)])
@pytest.mark.parametrize("key", [{"training__compile": True}, {"device": "cuda:0"}])
def test_some_of_the_time_is_kept_for_compiling(seconds, kept, key):
    assert ladder_of(80_000, seconds, **key) == ladder_of(80_000, seconds - kept)


def test_sizes_that_do_not_fit_into_memory_are_left_out(monkeypatch):
    def fits(values, corpus, keys, **_):
        if keys["model.d_model"] > 128:
            raise ConfigError("lower model.d_model")
        return Shape(keys, 10**6, 1e6)

    monkeypatch.setattr(ladder, "measured", fits)
    names = [shape.name for shape in measured_shapes({}, None, 600)]

    assert names == ["1 x 32", "1 x 64", "1 x 128", "2 x 128", "4 x 128"]

    monkeypatch.setattr(ladder, "FEWEST_SHAPES", 6)

    with pytest.raises(ConfigError):
        measured_shapes({}, None, 600)


def test_measuring_the_sizes_keeps_to_its_share_of_the_time(monkeypatch):
    taken = [0]  # seconds per size

    def takes_twice_as_long(values, corpus, keys, **_):
        taken.append(2 * taken[-1] or 1)
        return Shape(keys, 10**6, 1e6)

    monkeypatch.setattr(ladder, "measured", takes_twice_as_long)
    monkeypatch.setattr(ladder, "time", Namespace(monotonic=lambda: sum(taken)))
    measured_shapes({}, None, 600)

    # another size would need 64 more, and 120 are left for all
    assert taken == [0, 1, 2, 4, 8, 16, 32]


def test_more_time_makes_no_fewer_rungs_and_larger_models():
    short = ladder_of(80_000, 40)
    long = ladder_of(80_000, 2_000)

    assert len(short) <= len(long)
    assert max(sizes_of(short)) < max(sizes_of(long))


SHORTEST = r"the shortest ladder takes about (\d+) s at these speeds, not \d+ s\n"


@pytest.mark.parametrize("compiles", [False, True])
def test_without_enough_time_the_shortest_ladder_takes_as_long_as_a_line_says(
    compiles, capsys
):
    planned = ladder_of(20_000, 5, training__compile=compiles)
    least = int(re.match(SHORTEST, capsys.readouterr().out)[1])

    assert len(planned) == MIN_RUNS
    assert planned == ladder_of(20_000, least, training__compile=compiles)
    assert sum(rung.seconds for rung in planned) <= least
    assert capsys.readouterr().out == ""


def test_the_time_that_is_spent_counts(capsys):
    planned = ladder_of(20_000, 5)
    least = int(re.match(SHORTEST, capsys.readouterr().out)[1])

    assert ladder_of(20_000, least + 10, spent=10) == planned
    assert capsys.readouterr().out == ""

    assert ladder_of(20_000, least, spent=10) == planned
    assert re.match(SHORTEST, capsys.readouterr().out)[1] == str(least + 10)


@pytest.fixture
def tiny(text_file):
    values = resolve(TINY, {"data.corpus": str(text_file)})
    return values, load_corpus(str(text_file))


def test_rungs_are_trained_on_their_characters(tiny, monkeypatch):
    """All have complete schedules; the last one is evaluated on its way."""
    monkeypatch.setattr(ladder, "TIMED_SECONDS", 0.05)
    small = [measured(*tiny, shape_keys(d_model, 1)) for d_model in (8, 16)]

    assert small[0].n_weights < small[1].n_weights
    assert min(shape.chars_per_second for shape in small) > 0

    planned = []
    for n_steps, shape in product((4, 8, 16), small):
        planned.append(Rung(shape, n_steps * 512, 1.0))

    runs, rows = climb(*tiny, planned)

    for run, rung in zip(runs, planned, strict=True):
        assert run.n_weights == rung.shape.n_weights
        assert run.n_chars == rung.n_chars

    assert runs[-1].loss < runs[0].loss
    assert rows[-1]["chars"] == planned[-1].n_chars
    assert rows[-1]["learning_rate"] < rows[0]["learning_rate"]
    assert len(rows) == ladder.EVALUATIONS


def test_a_speed_is_that_of_all_characters_of_a_schedule(tiny, monkeypatch):
    """At 100 and 25 characters per second, 100 characters take 0.5 + 2 seconds."""
    clock = []

    def step_of(seconds):
        def step(stage):
            clock.append(seconds)
            return {"loss": torch.zeros(())}

        step.chars_per_step = 100
        return step

    rows = [
        (step_of(1.0), [Stage(0.5, 32, 0.15)]),
        (step_of(4.0), [Stage(1.0, 64, 0.15)]),
    ]
    monkeypatch.setattr(ladder, "warmed_up", lambda configs, report: rows)
    monkeypatch.setattr(ladder.time, "perf_counter", lambda: sum(clock))

    shape = measured(*tiny, shape_keys(8, 1))
    assert shape.chars_per_second == pytest.approx(100 / 2.5)


@pytest.mark.parametrize(("fixed", "chosen"), [(0, 1), (2, 2)])
def test_a_plan_chooses_its_threads_as_a_run_does(
    tiny, two_threads, fixed, chosen, monkeypatch, capsys
):
    """One thread is faster, and a key may fix the number."""
    seconds = {1: 1.0, 2: 2.0}
    monkeypatch.setattr(threads, "seconds_per_gradient", lambda *_: seconds)
    values, corpus = tiny
    choose_threads(values | {"training.threads": fixed}, corpus)

    assert torch.get_num_threads() == chosen
    assert ("1 thread is faster now than 2" in capsys.readouterr().out) == (fixed == 0)


SHAPE = Shape(shape_keys(8, 1), 1, 1.0)


def test_a_ladder_that_is_late_leaves_out_its_longest_rungs(tiny):
    planned = [Rung(SHAPE, (1 + i) * 512, 0.0) for i in range(MIN_RUNS)]
    runs, _ = climb(*tiny, [*planned, Rung(SHAPE, 10**12, 0.01)])

    assert len(runs) == MIN_RUNS


def test_a_ladder_that_diverges_is_refused(tiny):
    values, corpus = tiny
    values["training.learning_rate"] = 100.0

    with one_line(HealthCheckError, "lower training.learning_rate"):
        climb(values, corpus, [Rung(SHAPE, 40 * 512, 1.0)])
