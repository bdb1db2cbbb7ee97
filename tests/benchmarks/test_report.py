import pytest

from benchmarks.report import by_variant, compared, difference

LOSSES = {
    "base": [1.0, 2.0, 3.0],
    "better": [0.9, 1.91, 2.89],
    "alike": [1.1, 1.9, 3.0],
}


def results(losses):
    """Results of trials with up to three seeds."""
    rows = []
    for variant, values in losses.items():
        for seed, loss in enumerate(values):
            run = {"loss": loss, "chars": 1_500_000}
            rows.append({"variant": variant, "seed": seed, "results": run})

    return by_variant(rows)


def test_differences_are_paired_by_seed():
    """The seeds are far apart and the difference is the same for each: unpaired it would be lost."""
    all_seeds = results(LOSSES)
    better = difference(all_seeds, "loss", "better", "base")

    assert better.mean == pytest.approx(-0.1)
    assert better.stderr == pytest.approx(0.01 / 3**0.5)
    assert better.verdict == "better"
    assert difference(all_seeds, "loss", "alike", "base").verdict == "tie"
    assert difference(all_seeds, "loss", "base", "base") is None
    assert difference(all_seeds, "loss", "base", "") is None

    two_seeds = results(LOSSES | {"better": [0.9, 1.91]})
    fewer = difference(two_seeds, "loss", "better", "base")

    assert fewer.mean == pytest.approx(-0.095)
    assert fewer.degrees_of_freedom == 1


def test_the_table_shows_what_was_measured_and_how_sure_it_is():
    def table(losses, columns):
        return compared(results(losses), "base", {"loss": "the loss"}, columns)

    base, better = table(LOSSES, {"claim": {"better": "it is better"}})[:2]

    assert base == {
        "": "base",
        "the loss": "2.000 ± 0.577",
        "claim": "",
        "characters": "1.50 M",
    }
    assert better["the loss"] == "1.900 ± 0.574 (-0.100 ± 0.006, better)"
    assert better["claim"] == "it is better"

    one_seed = {name: values[:1] for name, values in LOSSES.items()}
    assert table(one_seed, {})[1]["the loss"] == "0.900 (-0.100, unknown)"
