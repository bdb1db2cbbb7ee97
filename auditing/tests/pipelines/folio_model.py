"""Folio's own model, windows and `MLM`; the model predicts the labelled positions only."""

import sys
from pathlib import Path

from torch.nn.functional import cross_entropy

sys.path.append(str(Path(__file__).parents[3]))

from data.masking import MLM
from data.windows import Windows
from model import MaskedLanguageModel, ModernEncoder

BATCH = 64
SEQ_LEN = 32


def make_model(tokens):
    encoder = ModernEncoder(
        n_tokens=tokens.n_tokens,
        d_model=64,
        n_layers=2,
        n_heads=4,
        d_ff=128,
        dropout=0.0,
    )
    return MaskedLanguageModel(encoder)


def make_batches(ids, tokens, seed, training):
    drawn = Windows(ids, seed=seed)
    special = list(range(tokens.n_ordinary, tokens.n_tokens))
    mlm = MLM(
        padding_token=tokens.padding,
        mask_token=tokens.mask,
        no_mask_tokens=special,
        n_tokens=tokens.n_tokens,
    )
    for _ in range(10**9 if training else 8):
        yield *mlm(drawn.draw(BATCH, SEQ_LEN).tokens), tokens.padding


def loss_and_logits(model, batch):
    inputs, labels, padding = batch
    labels = labels.flatten()
    positions = (labels != padding).nonzero()[:, 0]
    logits = model(inputs, positions)
    return cross_entropy(logits, labels[positions]), logits
