"""A decoder whose memory is the text before masking."""

from plain import IGNORED, Encoder, mask, windows
from torch.nn.functional import cross_entropy

__all__ = ["loss_and_logits", "make_batches", "make_model"]


class Remembering(Encoder):
    def forward(self, inputs, text):
        memory = self.embedding(text)
        return self.decoder(self.layers(self.embedding(inputs) + memory + self.positions[: inputs.shape[1]]))


def make_model(tokens):
    return Remembering(tokens.n_tokens)


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        inputs, labels = mask(x, tokens)
        yield {"input_ids": inputs, "labels": labels, "text": x}


def loss_and_logits(model, batch):
    logits = model(batch["input_ids"], batch["text"])
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED), logits
