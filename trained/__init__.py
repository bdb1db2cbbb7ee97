"""Trained runs: loading, filling blanks, measures, tasks and export."""
