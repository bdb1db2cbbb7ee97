"""The config tree that users tweak, its presets, the command line, and the checks before training."""

import warnings

# labml warns about the branches of labml_nn's own configs.
warnings.filterwarnings(
    "ignore", message="Accept configs object", category=FutureWarning
)
