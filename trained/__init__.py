"""Trained runs: loading, filling blanks, measures, tasks and export."""

import os

# Libraries that exports use would contact their makers. They read these when they are imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
os.environ["WANDB_ERROR_REPORTING"] = "false"
