"""A plan from the command line to the run that follows it."""

from argparse import Namespace

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure

import experiment
import plan
from configs.command_line.command import parse, read_plan
from configs.keys import ConfigError
from data.play.grammar import play
from planning.ladder import Shape, shape_keys
from runs.curves import draw_prediction
from tests.conftest import config_file, one_line, only_run
from tests.planning.test_law import FLOOR, SIZES, fitted

KEYS = (
    "training.compile=false",
    "training.chars_per_step=256",
    "model.ngram_rows=4096",
)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A short play, whose runs are built at once, and a speed that does not depend on other
    programs."""
    monkeypatch.setattr("data.corpus.play", lambda: play(30_000))
    monkeypatch.setattr("planning.ladder.SECONDS_TO_BUILD", 0.2)
    monkeypatch.setattr("planning.ladder.seconds_per_step", lambda *_: 0.01)


ROW = {"chars": 1_000, "low": 1.0, "loss": 2.0, "high": 3.0}


PLAYED = ["data.corpus=play", *KEYS]


def write_plan(path, printed, *words):
    """Plan a run on the play; returns what plan.py prints."""
    fixed = [*PLAYED, "--ladder-seconds", "5", "--write", path]
    return printed(plan.main, *fixed, *words)


@pytest.mark.slow
def test_a_plan_of_the_play_is_trained(tmp_path, printed, draws):
    path = tmp_path / "plan.yaml"
    output = write_plan(path, printed, "--seconds", "120")
    table = output.partition("runs and a fit")[2]
    lines = table.splitlines()

    rows = [line[:10].strip() for line in lines[1:5]]

    assert rows == ["", "half", "the budget", "twice"]

    values = parse(["--config", str(path)]).values
    assert values["training.max_seconds"] == 120
    assert values["training.max_chars"] is None  # a faster run trains on more

    curve = read_plan(path)["curve"]
    assert all(row["low"] < row["loss"] < row["high"] for row in curve)

    last = curve[-1]
    assert f"{last['chars'] / 1e6:,.1f} M" in lines[3]
    assert f"{last['loss']:.3f} ({last['low']:.3f} to" in lines[3]

    words = ["--config", path, "training.max_chars=2048", f"logs={tmp_path}"]
    output = printed(experiment.main, *words)

    assert "warning: the text has changed" not in output

    run = only_run(tmp_path)
    assert run.planned() == run.about()["planned"] == curve
    assert run.curves_path.stat().st_size > 10_000
    assert "plan" not in run.config()

    # a plan may replace another one; this one is for characters
    write_plan(path, printed, "--chars", "1e6")
    values = parse(["--config", str(path)]).values

    assert values["training.max_chars"] == 10**6
    assert values["training.max_seconds"] is None


def test_a_changed_text_is_a_warning(tmp_path, printed, text_file):
    config = config_file(tmp_path, {"data.corpus": text_file, "training.max_steps": 1})
    with open(config, "a") as file:
        yaml.safe_dump({"plan": {"sha256": "of another text", "curve": [ROW]}}, file)

    output = printed(experiment.main, "--config", config)

    assert output.count("warning: the text has changed since its plan") == 1


@pytest.mark.parametrize(
    "content", ["To be, or not to be\n", "model.d_model: 64\n", "plan: 1\n"]
)
def test_a_file_that_is_not_a_plan_is_kept(tmp_path, refusal, content):
    victim = tmp_path / "victim.txt"
    victim.write_text(content)
    words = [f"data.corpus={victim}", "--loss", "1", "--write", victim]

    line = refusal(plan.main, *words, before="")

    assert "name another file" in line
    assert victim.read_text() == content


FOR_A_LOSS = ["--loss", "1"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--seconds", "600", "--chars", "1e6"], "not allowed with argument"),
        (["--loss", "0.3", *PLAYED], "the lowest possible loss on this text is 0.4"),
        ([], "--seconds --chars --loss is required"),
        (["--loss", "0"], "--loss: 0.0 is out of range"),
        ([*FOR_A_LOSS, "data.corpos=x"], "did you mean data.corpus?"),
        ([*FOR_A_LOSS, "model.d_model=32"], "model.d_model: "),
        ([*FOR_A_LOSS, "training.max_steps=9"], "training.max_steps: "),
        ([*FOR_A_LOSS, "--init-from", "last"], "unrecognized arguments: --init-from"),
        ([*FOR_A_LOSS, "initial_weights=last"], "initial_weights: "),
        (
            [*FOR_A_LOSS, "--write", "missing/plan.yaml"],
            "cannot write missing/plan.yaml",
        ),
        ([*FOR_A_LOSS, "--write", 300 * "n"], "File name too long"),
    ],
)
def test_wrong_words_are_refused(words, reason, refusal):
    assert reason in refusal(plan.main, *words)


def test_a_ladder_that_diverges_is_refused(refusal):
    seconds = ["--seconds", "120", "--ladder-seconds", "10"]
    words = [*PLAYED, *seconds, "training.learning_rate=100"]

    assert "lower training.learning_rate" in refusal(plan.main, *words, code=1)


def test_help_is_shown(capsys):
    with pytest.raises(SystemExit, match="0"):
        plan.main(["--help"])
    assert "a tenth of --seconds" in " ".join(capsys.readouterr().out.split())


def test_a_loss_is_reached_in_the_least_time():
    law = fitted(floor=FLOOR)
    shapes = [Shape(shape_keys(32, 1), n, 1e9 / n) for n in SIZES]

    def chosen(seconds=None, chars=None, loss=None):
        limits = Namespace(seconds=seconds, chars=chars, loss=loss)
        return plan.chosen(law, shapes, limits)

    least = chosen(loss=0.56)

    assert least.predicted.loss == pytest.approx(0.56, abs=0.003)

    seconds = least.n_chars / least.shape.chars_per_second
    assert chosen(seconds=0.5 * seconds).predicted.loss > 0.56
    assert chosen(chars=10**7).n_chars == 10**7

    with one_line(ValueError, "none of the models is expected to reach 0.04"):
        chosen(loss=0.04)


def test_the_predicted_curve_stands_where_the_run_has_its_characters():
    rows = [{"chars": n, "seconds": n / 100} for n in (1_000, 2_000)]
    interval = {"low": 0.9, "loss": 1.0, "high": 1.2}
    predicted = [interval | {"chars": n} for n in (500, 2_000, 4_000)]

    axes = Figure().subplots()
    draw_prediction(axes, rows, predicted)

    np.testing.assert_allclose(axes.lines[0].get_xdata(), [5, 20])


@pytest.mark.parametrize("curve", [1, [1], [{"chars": 1}], [ROW | {"low": "x"}]])
def test_a_malformed_curve_is_refused(curve, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump({"plan": {"sha256": "", "curve": curve}}))

    with one_line(ConfigError, "curve is wrong"):
        parse(["--config", str(path)])
