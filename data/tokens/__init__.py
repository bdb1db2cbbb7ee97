"""Tokens other than characters, and the values of `data.tokens`.

Importing this package does not import PyTorch, so that config checks are fast.
"""

import re

CHARACTERS = "characters"
BYTES = "bytes"
SUBWORDS = "subwords"  # of a tokenizer.json, or of a BPE that Folio trains
CUSTOM = "custom"  # of a tokenizer that a user brings
BPE = re.compile(r"bpe:(.*)", re.DOTALL)
# OWNER/NAME of a repository on the Hub
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
