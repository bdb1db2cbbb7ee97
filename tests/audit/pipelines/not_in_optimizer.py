"""An optimizer that has the decoder only; the layers stay as they were initialized."""

import plain
import torch
from plain import loss_and_logits, make_batches

__all__ = ["loss_and_logits", "make_batches", "make_model"]


def make_model(tokens):
    model = plain.make_model(tokens)
    return model, torch.optim.AdamW(model.decoder.parameters(), lr=1e-3)
