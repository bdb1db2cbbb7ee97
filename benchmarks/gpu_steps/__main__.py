"""One step: python -m benchmarks.gpu_steps NAME FILE SECONDS [--dry-run]. Its result goes to FILE;
SECONDS is its limit."""

import sys
from pathlib import Path

from benchmarks.gpu_steps.plan import STEPS
from benchmarks.gpu_steps.step import Step
from training.tracking import be_quiet

be_quiet()
name, file, seconds, *flags = sys.argv[1:]
STEPS[name].take(Step(Path(file), float(seconds), is_dry="--dry-run" in flags))
