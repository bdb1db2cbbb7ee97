from math import inf

import pytest

from benchmarks.time_to_loss import (
    FOLIO,
    PEERS,
    SHARES,
    columns,
    figure,
    recipes,
    searched,
    seconds_to,
)
from configs.command_line.command import PRESETS, read_config, resolve
from configs.keys import ConfigError


def test_a_loss_between_two_evaluations_is_interpolated():
    curve = [(10.0, 3.0), (20.0, 2.0), (30.0, 2.5), (40.0, 1.0)]
    assert seconds_to(2.5, curve) == 15.0  # the first time
    assert seconds_to(1.75, curve) == 35.0
    assert seconds_to(3.5, curve) == 10.0  # at the first evaluation or before
    assert seconds_to(0.5, curve) == inf
    # although it rose again
    assert seconds_to(2.0, [(10.0, 1.9), (20.0, 2.1), (30.0, 1.8)]) == 10.0


def resolved(keys):
    """The values of a variant."""
    others = {key: value for key, value in keys.items() if key != "preset"}
    return resolve(read_config(PRESETS / f"{keys['preset']}.yaml"), others)


def test_every_recipe_is_valid():
    variants = recipes("quick", 600.0)

    for name, keys in variants.items():
        values = resolved(keys)
        assert values["training.max_seconds"] == SHARES[name] * 600.0
        assert values["training.max_chars"] is None

    quick = read_config(PRESETS / "quick.yaml")

    assert variants[FOLIO]["training.max_seconds"] == quick["training.max_seconds"]

    # its peers were not searched
    with pytest.raises(ConfigError, match="no best values for gpu"):
        recipes("gpu", 600.0)


@pytest.mark.parametrize("preset", ["quick", "gpu"])
def test_every_recipe_of_the_search_fits_its_windows_and_the_best_is_one_of_them(
    preset,
):
    variants = searched(preset)

    for keys in variants.values():
        values = resolved(keys | {"preset": preset})
        for row in values["training.stages"]:
            assert values["training.chars_per_step"] % row["seq_len"] == 0

    for peer, best in PEERS["best"].get(preset, {}).items():
        of_peer = [
            keys for variant, keys in variants.items() if variant.startswith(peer)
        ]
        assert any(best.items() <= keys.items() for keys in of_peer)


def test_the_table_gives_the_median_time_and_marks_the_first_evaluation():
    def run(*losses):
        curve = [(50.0 * (i + 1), loss) for i, loss in enumerate(losses)]
        return {"counting": 1.179, "curve": curve, "seconds": curve[-1][0]}

    results = {
        FOLIO: {0: run(2.5, 1.5, 1.0), 1: run(2.5, 2.3, 1.3)},
        "annotated": {0: run(3.5, 3.4)},
        "Hugging Face BERT": {0: run(3.2, 1.5, 1.6)},
        "Hugging Face ModernBERT": {0: run(3.2, 1.9, 1.7)},
    }
    table = columns(results)

    assert list(table["to 3.0"].values()) == ["≤ 50 s", "never", "56 s", "58 s"]
    assert table["to 2.0"][FOLIO] == "95 s"  # 75 and 115
    assert table["to 1.500, a peer's best"][FOLIO] == "120 s"  # 1.5 after 100 and 140
    assert table["to 1.4"]["Hugging Face BERT"] == "never"

    (axes,) = figure(results).axes
    assert len(axes.lines) == 5 + 1  # the runs, and counting
