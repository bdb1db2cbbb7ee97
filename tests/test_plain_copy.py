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
    words = ["experiment.py", "--preset", "quick", f"data.corpus={corpus_file}", *KEYS]
    environment = os.environ | {"HOME": "/proc/nothing"}
    done = subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True)
    assert "\ndone (" in done.stdout, done.stderr
