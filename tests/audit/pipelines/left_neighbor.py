"""Replacements written one position too far to the left: the character that [MASK] hides stands beside it."""

import torch
from plain import IGNORED, loss_and_logits, make_model, windows

__all__ = ["loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        selected = torch.rand(x.shape) < 0.05
        selected[:, 0] = False
        inputs = torch.where(selected, tokens.mask, x)
        moved = torch.cat([selected[:, 1:], selected[:, :1]], dim=1) & ~selected
        inputs = torch.where(moved, torch.cat([x[:, 1:], x[:, :1]], dim=1), inputs)
        yield inputs, torch.where(selected, x, IGNORED)
