"""Trained runs: loading, filling blanks, measures, tasks and export."""

import os

# onnxruntime would contact its makers. It reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
