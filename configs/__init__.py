"""The config tree that users tweak, its presets, the command line, and the checks before training."""
