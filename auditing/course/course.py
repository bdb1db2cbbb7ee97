"""The course: hands out exercises, shows their symptoms, and has the audit judge the repairs.

An exercise is a file with a buggy masker `mask`, whose docstring says what it should do. A repair
is right if all findings of the audit are `ok`.
"""

import argparse
import json
import secrets
from pathlib import Path
from typing import Any

from auditing.findings import CATALOGUE, Finding
from auditing.masks.audit import audit_measured
from auditing.masks.measure import Call, measure
from auditing.masks.tokens import MaskOptions
from auditing.process import TargetProcess

FOLDER = Path(__file__).with_name("exercises")
EXERCISES = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
IDS: dict[str, Any] = {"n_tokens": 69, "mask": 66, "padding": 65, "special": (67, 68)}
# Of the main text: 15% is just below an integer, so a count may be rounded to the nearest or up.
WIDTHS = (133, 139, 146, 153)
PROGRESS = "progress.json"  # the names of the exercises that are passed
SECONDS = 60.0  # the time limit of each call of a masker
# Findings that would tell the bug of an exercise at once; its losses show it too.
OF_LABELS = {bug.name for bug in CATALOGUE.values() if bug.outcome == "labels"}
SERVICE = "auditing.course.symptoms"


def add_course_options(command: argparse.ArgumentParser) -> None:
    """The options of the course."""
    text = "where you repair the exercises (default: %(default)s)"
    where = {"nargs": "?", "type": Path, "default": Path("course")}
    command.add_argument("folder", metavar="FOLDER", help=text, **where)
    text = "also print the usual cause of each failure"
    command.add_argument("--hint", action="store_true", help=text)


def take_course(options: argparse.Namespace) -> int:
    """Hand out the current exercise, or check it and hand out the next one; returns the exit code:
    3 if the exercise is not passed.

    Raises TargetError if the learner's file does not mask, ValueError if the progress is damaged.
    """
    path = current(options.folder)
    if path and path.exists():
        if not is_passed(path, options.hint):
            return 3
        path = current(options.folder)

    if path is None:
        print(f"All {len(EXERCISES)} exercises are passed.")
    elif path.exists():
        print(f"{path} is the next one.")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, EXERCISES[path.name])
        is_passed(path, options.hint)
    return 0


def current(folder: Path) -> Path | None:
    """The first exercise that is not passed, or None."""
    passed = passed_in(folder)
    return next((folder / name for name in EXERCISES if name not in passed), None)


def passed_in(folder: Path) -> set[str]:
    """The names of the exercises that are passed. Raises ValueError if their file is damaged."""
    path = folder / PROGRESS
    try:
        return set(json.loads(path.read_text()))
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError):
        raise ValueError(f"cannot read {path}: delete it to begin again") from None


def write(path: Path, text: str) -> None:
    """Write a file that appears as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


def is_passed(path: Path, with_hints: bool) -> bool:
    """Judge a file and remember that it is right. Otherwise print the symptoms, if it is as it was
    handed out, or the properties that the repair lacks."""
    is_new = path.read_bytes() == EXERCISES[path.name].encode()
    seed = secrets.randbelow(2**31)
    with TargetProcess(f"{path}:mask", SERVICE, SECONDS) as process:
        wrong = judge(process.call, seed)
        if wrong and not is_new:
            # A right repair fails at most one check in 1,000: check again, with other draws of the same width.
            wrong = judge(process.call, seed + len(WIDTHS))
        symptoms = process.call("symptoms", seed) if is_new else ""
    if not wrong:
        passed = passed_in(path.parent) | {path.name}
        write(path.with_name(PROGRESS), json.dumps(sorted(passed), indent=2) + "\n")
        print(f"{path}: passed, {len(passed)} of {len(EXERCISES)}")
        return True

    if is_new:
        print(f"{path}: `mask` does not do what its docstring says.")
        print("Repair it, then run the same command again; --hint names a usual cause.")
        print(symptoms)
    else:
        print(f"{path}: not passed")
    for each in wrong:
        if not (is_new and each.bug in OF_LABELS):
            print(f"  {each.name}: {each.found}; expected {each.expected}")
        if with_hints:
            print(f"    Hint: {each.cause}")
    return False


def judge(call: Call, seed: int) -> list[Finding]:
    """The bugs of a masker; `call` reaches the methods of its service.

    The texts, their width and the draws follow the seed. Raises TargetError if it does not mask.
    """
    options = MaskOptions("tensor", **IDS, ignored=-100, recipe="BERT", seed=seed)
    width = WIDTHS[seed % len(WIDTHS)]
    others = {"long": 4 * width, "padded": width // 2, "short": 7}
    measured = measure(call, options, main=width, **others)
    findings = audit_measured(measured, "mask").findings
    return [each for each in findings if each.bug]
