"""What a user tweaks: the tree of labml configs, the presets, and the checks that come before any training."""
