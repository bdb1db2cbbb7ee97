"""A machine without git and without a home folder that can be written, as those with GPUs may be."""

import os
import shutil
import subprocess
import sys

from runs.files import ROOT

KEYS = ["device=cpu", "training.compile=false", "training.max_steps=2", "model.ngrams=0", "sample.every_evaluations=0"]


def test_folio_trains_from_a_copy_of_its_files(tmp_path, corpus_file):
    others = shutil.ignore_patterns(".*", "logs", "cache", "node_modules", "tests", "docs", "__pycache__")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=others)
    named = "from benchmarks.command import commit; print(commit())"
    outputs = []
    for words in (["experiment.py", "--preset", "quick", f"data.corpus={corpus_file}", *KEYS], ["-c", named]):
        command, environment = [sys.executable, *words], os.environ | {"HOME": "/proc/nothing"}
        outputs.append(subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True).stdout)
    assert "\ndone (" in outputs[0]
    assert outputs[1].startswith("files-")
