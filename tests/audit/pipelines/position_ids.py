"""Position ids that were sorted along with the text: they follow from the hidden characters."""

from plain import IGNORED, SEQ_LEN, Encoder, mask, windows
from torch.nn.functional import cross_entropy

__all__ = ["loss_and_logits", "make_batches", "make_model"]


class Positioned(Encoder):
    def forward(self, inputs, position_ids):
        x = self.embedding(inputs) + self.positions[position_ids]
        return self.decoder(self.layers(x))


def make_model(tokens):
    return Positioned(tokens.n_tokens)


def make_batches(ids, tokens, seed, training):
    for x in windows(ids, seed, training):
        inputs, labels = mask(x, tokens)
        yield {"input_ids": inputs, "labels": labels, "position_ids": (x + 7) % SEQ_LEN}


def loss_and_logits(model, batch):
    logits = model(batch["input_ids"], batch["position_ids"])
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED), logits
