"""The config tree that users tweak, its presets, the command line, and the checks before training."""

import warnings

# labml warns about config branches that it builds from their types.
warnings.filterwarnings("ignore", message="Accept configs object", category=FutureWarning)
