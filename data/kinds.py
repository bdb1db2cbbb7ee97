"""The kinds of tokens that `data.tokens` selects; without PyTorch, for checks of the command line."""

import re

CHARACTERS, BYTES = "characters", "bytes"
BPE = re.compile(r"bpe:(.*)", re.DOTALL)
