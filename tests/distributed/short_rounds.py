"""Starts a program with short rounds of the watchdog: `python tests/distributed/short_rounds.py PROGRAM ARGUMENTS`."""

import runpy
import sys

from distributed import watchdog

if __name__ == "__main__":
    watchdog.SECONDS_PER_ROUND = 0.5
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
