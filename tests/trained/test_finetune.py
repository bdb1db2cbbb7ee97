"""`python finetune.py`, in process."""

import json
import os
import re
import sys
from itertools import product

import pytest

import evaluate
from finetune import main
from tests.conftest import written
from tests.trained.conftest import csv_of_animals, small_run
from trained.task_results import (
    BEST_BASELINE,
    COMBINED,
    FREQUENT,
    FROM_SCRATCH,
    NGRAMS,
    PRETRAINED,
    PROBE,
    SCRATCH_COMBINED,
    figure_of,
)

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    return csv_of_animals(tmp_path_factory.mktemp("task") / "animals.csv")


def finetuned(trained, *words):
    return main([str(trained.run.path), *map(str, words)])


def test_the_models_and_the_baselines_are_compared(with_ngrams, csv_file, capsys):
    assert finetuned(with_ngrams, "--task", csv_file, "--labels", 16, "--draws", 2) == 0

    output, progress = capsys.readouterr()
    assert (
        "animals.csv: 16 labelled of 28, 12 for testing, 2 labels, 2 draws of labels"
        in output
    )

    (results,) = json.loads(
        (with_ngrams.run.path / "tasks-16.json").read_text()
    ).values()
    assert results["scores"]["most frequent label"]["mean"] == 0.5
    assert results["scores"]["character n-grams"]["mean"] == 1.0
    assert set(results["gains"][PRETRAINED]) == {FROM_SCRATCH, NGRAMS}
    assert set(results["gains"][COMBINED]) == {SCRATCH_COMBINED, NGRAMS}
    assert sum(map(sum, results["confusion"])) == 2 * 12
    assert 0 <= results["macro F1"] <= 1

    lines = re.findall(r"draw (\d), (.*): [\d.]+ \(", progress)
    methods = [PRETRAINED, COMBINED, PROBE, FROM_SCRATCH, SCRATCH_COMBINED, NGRAMS]
    methods.append(FREQUENT)

    assert lines == list(product("01", methods))


def test_the_results_of_several_tasks_are_kept_and_shown_together(
    plain, csv_file, tmp_path, printed, refusal
):
    folder = plain.run.path
    other = tmp_path / "other.csv"
    for file in folder.glob("tasks*"):  # of other tests
        file.unlink()

    words = [str(folder), "--tasks"]

    assert "has learned no task: run python finetune.py" in refusal(
        evaluate.main, *words
    )

    other.write_bytes(csv_file.read_bytes())

    kept = {}
    for task, n_labels in ((csv_file, 8), (csv_file, 16), (other, 8)):
        assert finetuned(plain, "--task", task, "--labels", n_labels, "--draws", 1) == 0

        results = json.loads((folder / f"tasks-{n_labels}.json").read_text())
        assert kept.get(n_labels, {}).items() <= results.items()

        kept[n_labels] = results

    assert len(results) == 2

    _, last = results.popitem()
    assert (last["labelled"], last["test"], last["draws"]) == (8, 12, 1)
    verdicts = {gain["verdict"] for gain in last["gains"][PRETRAINED].values()}
    assert verdicts == {"no verdict"}

    rows = re.findall(
        r"^  animals\.csv \w+ +(\d+) ", printed(evaluate.main, *words), re.M
    )
    assert rows == ["8", "16"]

    for newest, older in ((9, 10), (10, 9)):
        for n, ceiling, seconds in ((older, 0.5, 1), (newest, 0.125, 2)):
            # all of as many labels
            content = json.dumps({"newest": last | {"ceiling": ceiling}})
            path = written(folder / f"tasks-{n}.json", content)
            os.utime(path, (seconds, seconds))

        (row,) = re.findall("^  newest.*", printed(evaluate.main, *words), re.M)

        assert "0.125" in row

    assert (folder / "tasks.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_ends_at_the_lowest_and_the_highest_score():
    high = {"mean": 0.9, "margin": 0.6}
    low = {"mean": 0.1, "margin": 0.6}
    scores = {PRETRAINED: high, BEST_BASELINE: low}

    (panel,) = figure_of({"task": {16: {"scores": scores}}}, "labels").axes

    assert panel.get_ylim() == (-0.02, 1.02)


@pytest.mark.parametrize(("cat", "counted"), [("cat", []), ("çät", ["16 of 221"])])
def test_long_texts_and_characters_that_the_run_does_not_know_are_counted(
    plain, tmp_path, printed, cat, counted
):
    rows = ["text,label", f"{' ' * 61}rats,t"]
    for i, animal in product(range(8), (cat, "dog", "rat")):
        rows.append(f"{' ' * i}{animal},{animal[-1]}")

    file = written(tmp_path / "animals.csv", "\n".join(rows))
    output = printed(main, plain.run.path, "--task", file, "--draws", 1)

    assert (
        re.findall(r"^(.*) characters are not in the run's vocabulary", output, re.M)
        == counted
    )
    assert (
        "1 of 25 texts are longer than 64 characters: the models read them in windows"
        in output
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--task missing.csv", "missing.csv"),
        ("--task=", "''"),
        ("--task speekers", "'speekers'"),
        ("--task all", "play, tiny_shakespeare"),
        ("--task speaker", "speakers"),
        ("--task speaker --labels 7", "--labels"),
        ("--task speaker --draws 0", "--draws"),
        ("--task speaker data.tokens=bytes", "data.corpus="),
        ("", "--task"),
    ],
)
def test_wrong_input_is_one_line(plain, refusal, words, named):
    assert named in refusal(main, plain.run.path, *words.split())


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"task": {}}',
        '{"task": {"labelled": 8, "scores": {}}}',
        '{"task": {"labelled": 8, "scores": {"probe": 3}}}',
    ],
)
def test_damaged_results_are_refused_before_anything_is_trained(
    plain, csv_file, refusal, content
):
    path = written(plain.run.path / "tasks-9.json", content)
    line = refusal(main, plain.run.path, "--task", csv_file, "--labels", 9)
    path.unlink()

    assert f"{path} is damaged" in line


def test_other_architectures_are_refused(tmp_path, text_file, csv_file, refusal):
    keys = {"model__architecture": "labml_nn", "training__optimizer": "adamw"}
    trained = small_run(tmp_path / "run", text_file, training__max_steps=1, **keys)
    line = refusal(main, trained.run.path, "--task", csv_file)

    assert "model.architecture=labml_nn: only modern without" in line


def test_a_missing_library_is_one_line(plain, csv_file, refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    for name in list(sys.modules):
        if name.startswith(
            ("sklearn.", "trained.baselines", "trained.comp", "trained.classif")
        ):
            monkeypatch.delitem(sys.modules, name)

    line = refusal(main, plain.run.path, "--task", csv_file)

    assert "pip install -r requirements-finetune.txt" in line


def test_tasks_are_learned_over_the_course_of_a_training(
    tmp_path, text_file, monkeypatch, printed, refusal
):
    marks = ["1 steps", "1K"]
    keys = {"checkpoint__keep_at": marks, "training__max_steps": 4}
    run = small_run(tmp_path / "run", text_file, **keys).run
    words = [str(run.path), "--tasks", "--over-time"]
    assert "has learned no task" in refusal(evaluate.main, *words)
    assert "--over-time needs --tasks" in refusal(
        evaluate.main, words[0], "--over-time"
    )

    csv_of_animals(tmp_path / "animals.csv")
    monkeypatch.chdir(tmp_path)
    labels = ["--labels", "16", "--draws", "1"]
    assert main([f"{run.path}@1K", "--task", "animals.csv", *labels]) == 0
    assert not [*run.path.glob("tasks-*.json")]
    assert main([str(run.path), "--task", "animals.csv", *labels]) == 0

    monkeypatch.chdir(run.path)  # the table is found from any folder
    output = printed(evaluate.main, *words)
    assert "run@1-steps" in output
    assert "run@1K" not in output  # it knows the task
    rows = re.findall(r"^  16 labels, animals.csv .* (\d+) +[01]\.\d{3} ", output, re.M)
    assert rows == ["512", "1024", "2048"]
    picture = run.path / "tasks_over_time.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
