"""A loss averaged over all positions, labelled or not."""

import torch
from plain import IGNORED, make_batches, make_model
from torch.nn.functional import cross_entropy

__all__ = ["evaluate", "loss_and_logits", "make_batches", "make_model"]


def loss_and_logits(model, batch):
    inputs, labels = batch
    logits = model(inputs)
    losses = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.mean(), logits


def evaluate(model, ids, tokens):
    with torch.no_grad():
        losses = [loss_and_logits(model, batch)[0] for batch in make_batches(ids, tokens, 0, training=False)]
    return torch.stack(losses).mean().item()
