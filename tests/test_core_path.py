"""The core path: every file that builds a run of `quick`, or that its step and its evaluation
execute."""

import re
import sys
from pathlib import Path

import torch

from configs.command_line.command import PRESETS, read_config, resolve
from configs.experiment import configs_of
from runs.files import ROOT

PAGE = ROOT / "docs" / "reading.md"
KEYS = {
    "data.corpus": "tiny_shakespeare",
    "device": "cpu",
    "training.max_steps": 1,
    "training.evaluations": 1,
}


def test_the_core_path_is_what_a_step_executes(shakespeare, monkeypatch):
    """The files with a function that is called to build `quick`, to take a step, and to evaluate."""
    values = resolve(read_config(PRESETS / "quick.yaml"), KEYS)
    monkeypatch.setattr("data.protocol.MAX_WINDOWS", 4)
    # Folio's part is the same
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    # imports all modules: their own lines are not the calls of a step
    configs_of(values).trainer.train()
    found = set()

    def trace(frame, event, argument):
        found.add(frame.f_code.co_filename)

    sys.setprofile(trace)
    try:
        configs_of(values).trainer.train()
    finally:
        sys.setprofile(None)
    paths = {
        Path(name).relative_to(ROOT) for name in found if name.startswith(str(ROOT))
    }
    executed = {str(path) for path in paths if not {".venv", "tests"} & set(path.parts)}
    # the entry point, and the hooks: the traced run has no callbacks
    outside = {"experiment.py", "training/callbacks/callback.py"}
    assert executed | outside == listed()


def listed():
    """The files that docs/reading.md describes as the core path."""
    return set(
        re.findall(
            r"^#### `([\w/]+\.py)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
        )
    )
