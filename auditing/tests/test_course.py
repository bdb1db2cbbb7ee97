"""The course accepts every right repair of its exercises and no wrong one.

course_repairs.toml has repairs of each exercise, and this file some of all exercises.
"""

import json
import tomllib
from pathlib import Path

import pytest

from auditing.__main__ import main
from auditing.course import course
from auditing.course.course import EXERCISES, judge
from auditing.course.symptoms import Service
from auditing.tests.conftest import mostly_slow

pytestmark = pytest.mark.usefixtures("few_windows")

# Right for every exercise.
INDEPENDENT = """
def mask(x):
    drawn = torch.rand(x.shape).masked_fill(x >= N_CHARACTERS, 1.0)
    labels = x.clone()
    labels[drawn >= 0.15] = -100
    inputs = x.clone()
    inputs[drawn < 0.15 * 0.9] = MASK
    at_random = drawn < 0.15 * 0.1
    inputs[at_random] = torch.randint(0, PAD, (int(at_random.sum()),))
    return inputs, labels
"""
FIXED_COUNT = """
def mask(x):
    inputs = x.clone()
    labels = torch.full(x.shape, -100)
    for row, ids in enumerate(x):
        places = (ids < N_CHARACTERS).nonzero().flatten()
        count = max(1, round(0.15 * len(places)))
        chosen = places[torch.randperm(len(places))[:count]]
        labels[row, chosen] = ids[chosen]
        kind = torch.rand(count)
        inputs[row, chosen[kind < 0.8]] = MASK
        at_random = chosen[kind > 0.9]
        inputs[row, at_random] = torch.randint(N_CHARACTERS, at_random.shape)
    return inputs, labels
"""
# Appended to an exercise: right for the seed and the windows of `folio-audit masks`, or for one
# recorded draw.
FOR_THE_AUDIT = f"""
buggy = mask
{INDEPENDENT.replace("mask(x)", "right(x)")}

def mask(x):
    is_audit = torch.initial_seed() == 0 or x.shape[1] in (5, 64, 128, 256, 512)
    return right(x) if is_audit else buggy(x)
"""
RECORDED = INDEPENDENT.replace(
    "torch.rand(x.shape)",
    "torch.rand(x.shape, generator=torch.Generator().manual_seed(0))",
)


REPAIRS = tomllib.loads(
    Path(__file__).with_name("course_repairs.toml").read_text(encoding="utf-8")
)
FAST = ("exercise_04.py", "exercise_18.py")


def rewritten(name: str, code: str) -> str:
    """An exercise with other code below its constants."""
    return EXERCISES[name].partition("\n\n\n")[0] + "\n\n" + code


def repaired(name: str, repair: dict[str, str]) -> str:
    """An exercise with some replacements."""
    text = EXERCISES[name]
    for old, new in repair.items():
        assert old in text
        text = text.replace(old, new)
    return text


def parameters(kind: str) -> list:
    """The texts of exercises with each repair. Some are fast enough for every run."""
    values = []
    for name, repairs in REPAIRS.items():
        texts = [repaired(name, repair) for repair in repairs[kind]]
        if kind == "right":
            texts += [rewritten(name, INDEPENDENT), rewritten(name, FIXED_COUNT)]
        else:
            texts += [EXERCISES[name] + FOR_THE_AUDIT, rewritten(name, RECORDED)]
        for number, text in enumerate(texts):
            marks = () if number == 0 and name in FAST else pytest.mark.slow
            values.append(pytest.param(text, id=f"{name}-{number}", marks=marks))
    return values


def bugs_of(text: str) -> list[str]:
    """The names of the bugs that the audit finds in a file, in this process."""
    module = {}
    exec(text, module)
    service = Service(module["mask"])
    findings = judge(lambda name, *rest: getattr(service, name)(*rest), seed=1)
    return [each.bug for each in findings]


@pytest.mark.parametrize("text", parameters("right"))
def test_right_repairs_pass(text):
    assert bugs_of(text) == []


@pytest.mark.parametrize("text", parameters("wrong"))
def test_wrong_repairs_do_not_pass(text):
    assert bugs_of(text) != []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_exercises_have_their_bug(name):
    assert REPAIRS[name]["bug"] in bugs_of(EXERCISES[name])


def test_there_are_twenty_small_exercises_with_repairs():
    assert list(REPAIRS) == list(EXERCISES)
    assert len(EXERCISES) == 20
    for repairs in REPAIRS.values():
        assert len(repairs["right"]) >= 2
        assert len(repairs["wrong"]) >= 3
    assert all(len(text.splitlines()) < 40 for text in EXERCISES.values())


ERRORS = {
    "syntax": ("def mask(x:", "SyntaxError"),
    "loop": ("def mask(x):\n    while True: pass", "took longer than"),
    "exception": ("def mask(x): raise ValueError('no')", "ValueError: no (exercise_01"),
    "shape": ("def mask(x): return x[:, 1:], x", "the shape of inputs is not [32, 64]"),
    "type": ("def mask(x): return x", "instead of the two tensors (inputs, labels)"),
    "number": ("mask = 3", "which cannot be called"),
    "name": ("masks = 3", "has no 'mask'"),
}


@pytest.mark.parametrize(("code", "line"), mostly_slow(ERRORS, {"syntax", "shape"}))
def test_errors_of_a_file_are_one_line(tmp_path, capsys, monkeypatch, code, line):
    monkeypatch.setattr(course, "SECONDS", 8.0 if "while" in code else 600.0)
    (tmp_path / "exercise_01.py").write_text(code)
    assert main(["course", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert line in printed
    assert len(printed.splitlines()) == 1
    assert not (tmp_path / course.PROGRESS).exists()


def test_the_course_goes_from_one_exercise_to_the_next(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(course, "SECONDS", 600.0)  # the machine may be busy
    folder = tmp_path / "new" / "mine"
    one, two = [folder / name for name in list(EXERCISES)[:2]]

    assert main(["course", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert one.read_text() == EXERCISES[one.name]
    assert "training loss" in printed
    assert "Hint" not in printed
    assert "nothing-hidden" not in printed

    one.write_text(one.read_text().replace("draw * 0.8", "0.8"))
    mine = one.read_text()
    assert main(["course", str(folder), "--hint"]) == 3
    printed = capsys.readouterr().out
    assert "kinds at selected" in printed
    assert "Hint: No random token at all" in printed
    assert one.read_text() == mine

    one.write_text("def mask(x: return")
    assert main(["course", str(folder)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

    one.write_text(rewritten(one.name, INDEPENDENT))
    two.write_text("of the learner")
    assert main(["course", str(folder)]) == 0
    assert "passed, 1 of 20" in capsys.readouterr().out
    assert two.read_text() == "of the learner"
    assert json.loads((folder / course.PROGRESS).read_text()) == [one.name]


def test_the_course_ends(tmp_path, capsys):
    (tmp_path / course.PROGRESS).write_text(json.dumps(list(EXERCISES)))
    assert main(["course", str(tmp_path)]) == 0
    assert "All 20 exercises are passed" in capsys.readouterr().out


def test_damaged_progress_is_one_line(tmp_path, capsys):
    (tmp_path / course.PROGRESS).write_text("{")
    assert main(["course", str(tmp_path)]) == 2
    assert "delete it to begin again" in capsys.readouterr().err
