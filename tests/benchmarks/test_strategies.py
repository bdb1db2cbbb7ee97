from benchmarks.strategies import RECIPE
from configs.command_line import PRESETS, read_config


def test_the_recipe_sets_the_size_of_the_model_itself():
    """Otherwise another `quick` would train another model, and old results would no longer compare with new ones."""
    sizes = {key for key in read_config(PRESETS / "quick.yaml") if key.startswith("model.")}
    assert RECIPE["keys"]["model.ngrams"] == 0
    assert sizes - {"model.ngram_rows"} <= set(RECIPE["keys"])
