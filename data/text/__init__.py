"""Text from files: reading it, and keeping large texts on the disk."""
