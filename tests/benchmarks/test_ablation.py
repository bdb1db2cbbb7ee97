from benchmarks.ablation import COMMON, RUNGS, comparable, rungs
from benchmarks.models import MODELS
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve


def test_it_begins_with_the_annotated_recipe_and_ends_with_the_preset():
    """All keys, but how long and how often."""
    beside = {"training.max_chars", "training.max_seconds", "training.evaluations", "sample.every_evaluations"}
    quick, annotated = (read_config(PRESETS / f"{name}.yaml") for name in ("quick", "annotated"))
    for name, expected in (("annotated", resolve(annotated, {})), (list(RUNGS)[-1], resolve(quick, {}))):
        values = resolve(quick, rungs()[name])
        assert {key for key in values if values[key] != expected[key]} <= beside


def test_how_long_and_how_often_is_no_rungs_to_say():
    for keys in rungs().values():
        assert not {*COMMON, *BUDGETS} & set(keys)


def test_every_model_of_a_rung_is_there():
    architectures = {rung["model.architecture"] for rung in rungs().values()}
    assert architectures == set(MODELS) | {"labml_nn", "modern"}


def test_the_first_rung_of_a_shorter_ladder_is_compared_with_none():
    names = list(RUNGS)[-3:]
    for found in comparable(names).values():
        assert found == set(names[1:])
