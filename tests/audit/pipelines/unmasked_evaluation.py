"""Evaluation on text that is not masked: every position is scored, and shows its character."""

import plain
import torch
from plain import loss_and_logits, make_model, windows

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def make_batches(ids, tokens, seed, training):
    if training:
        yield from plain.make_batches(ids, tokens, seed, training)
    else:
        yield from ((x, x.clone()) for x in windows(ids, seed, training))


def evaluate(model, ids, tokens):
    losses = [loss_and_logits(model, batch)[0] for batch in make_batches(ids, tokens, 0, training=False)]
    return torch.stack(losses).mean().item()
