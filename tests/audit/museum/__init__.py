"""Maskers with planted bugs, each one found in a public project, and correct maskers."""

from tests.audit.museum.bugs import BUGS
from tests.audit.museum.collators import COLLATOR_BUGS

EXHIBITS = [*BUGS, *COLLATOR_BUGS]
