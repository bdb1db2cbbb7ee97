from benchmarks.ablation import CHANGES, recipes, report
from benchmarks.models import MODELS
from benchmarks.trials import COMMON
from configs.checks import BUDGETS
from configs.command_line import PRESETS, read_config, resolve


def test_it_begins_with_the_annotated_recipe_and_ends_with_the_preset():
    """All keys except budget and evaluations."""
    excluded = {"training.max_chars", "training.max_seconds", "training.evaluations", "sample.every_evaluations"}
    quick, annotated = (read_config(PRESETS / f"{name}.yaml") for name in ("quick", "annotated"))
    for name, expected in (("annotated", resolve(annotated, {})), (list(CHANGES)[-1], resolve(quick, {}))):
        values = resolve(quick, recipes()[name])
        assert {key for key in values if values[key] != expected[key]} <= excluded | set(COMMON)


def test_no_change_sets_the_budget_or_the_evaluations():
    for keys in recipes().values():
        assert not {*COMMON, *BUDGETS} & set(keys)


def test_every_model_of_a_recipe_exists():
    assert {keys["model.architecture"] for keys in recipes().values()} == set(MODELS) | {"labml_nn", "modern"}


def test_every_recipe_is_compared_with_the_one_above():
    names = list(CHANGES)[-3:]
    assert report(names, 90.0).bases == {names[1]: names[0], names[2]: names[1]}
