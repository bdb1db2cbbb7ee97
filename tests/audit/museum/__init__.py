"""Maskers with planted bugs, each one found in a public project, and correct maskers."""

from tests.audit.museum import batches, labels, randomness, replacements, selection
from tests.audit.museum.exhibit import EXHIBITS, Exhibit

__all__ = ["EXHIBITS", "Exhibit", "batches", "labels", "randomness", "replacements", "selection"]
