from dataclasses import replace

import pytest

from benchmarks.report import Report, by_variant

MACHINE = {"machine": "M, 2 cores", "threads": "2", "torch": "2.0", "date": "2026-01-01"}
LOSSES = {
    "base": [1.0, 2.0, 3.0],
    "better": [0.9, 1.91, 2.89],
    "alike": [1.1, 1.9, 3.0],
}


def rows(losses: dict[str, list[float]], **results) -> list[dict]:
    """Trials of three seeds, seed by seed, as run_trials returns them."""
    common = {"chars": 1_500_000, "seq_len": 64, **results}
    return [
        {"variant": variant, "seed": seed, "commit": "1234567", "results": {"loss": values[seed], **common}}
        for seed in range(3)
        for variant, values in losses.items()
        if seed < len(values)
    ]


@pytest.fixture
def report():
    return Report(
        title="A title",
        note="A note.",
        base="`base`",
        bases={"better": "base", "alike": "base"},
        losses={"loss": "the loss"},
        columns={"claim": {"better": "it is better"}},
    )


def test_differences_are_paired_by_seed(report):
    """The seeds are far apart and the difference is the same for each: unpaired it would be lost."""
    results = by_variant(rows(LOSSES))
    better, alike = (report.difference(results, "loss", name) for name in ("better", "alike"))
    assert better.mean == pytest.approx(-0.1)
    assert better.stderr == pytest.approx(0.01 / 3**0.5)
    assert better.verdict == "better"
    assert alike.verdict == "tie"
    assert report.difference(results, "loss", "base") is None


def test_only_seeds_that_both_have_are_compared(report):
    results = by_variant(rows(LOSSES | {"better": [0.9, 1.91]}))
    difference = report.difference(results, "loss", "better")
    assert difference.mean == pytest.approx(-0.095)
    assert difference.degrees_of_freedom == 1


def test_losses_in_windows_as_trained_are_compared_only_if_the_windows_are_as_long(report):
    name = "loss.valid_at_seq_len"
    results = by_variant(rows(LOSSES, **{name: 1.0}) + rows({"longer": [1.0, 2.0, 3.0]}, seq_len=256, **{name: 1.0}))
    report = replace(report, bases={"better": "base", "longer": "base"})
    assert report.difference(results, name, "better").mean == 0
    assert report.difference(results, name, "longer") is None
    assert report.difference(results, "loss", "longer") is not None


def test_the_table_shows_what_was_measured_where_and_how_sure_it_is(report):
    text = report.markdown(rows(LOSSES), MACHINE)
    assert "3 seeds; M, 2 cores, 2 threads, torch 2.0, commit 1234567, 2026-01-01." in text
    assert "| variant | the loss | claim | characters |\n|---|---|---|---|\n" in text
    assert "| base | 2.000 ± 0.577 |  | 1.50 M |\n" in text
    assert "| better | 1.900 ± 0.574 (-0.100 ± 0.006, better) | it is better | 1.50 M |\n" in text


def test_one_seed_gives_no_verdict(report, tmp_path):
    """A benchmark that is only tried has a table and a picture too."""
    one = rows({name: values[:1] for name, values in LOSSES.items()})
    assert "| better | 0.900 (-0.100, unknown) | it is better | 1.50 M |\n" in report.markdown(one, MACHINE)
    report.save(tmp_path / "x", {"trials": one, "machine": MACHINE})
    assert (tmp_path / "x.md").read_text().startswith("# A title\n")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_curves_are_drawn_if_there_are_any(report):
    curve = [(1.0, 3.0), (10.0, 2.0)]
    assert len(report.figure(by_variant(rows(LOSSES))).axes) == 1
    axes = report.figure(by_variant(rows(LOSSES, curve=curve, counting=1.2))).axes
    assert len(axes) == 2
    assert len(axes[1].lines) == 9 + 1  # three variants, three seeds, and counting
