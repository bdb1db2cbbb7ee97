"""The kinds of tokens that `data.tokens` selects, and the shortest pair: facts that checks need
without PyTorch."""

import re

CHARACTERS, BYTES = "characters", "bytes"
BPE = re.compile(r"bpe:(.*)", re.DOTALL)
SHORTEST_PAIR = 5  # tokens: [CLS] A [SEP] B [SEP]
