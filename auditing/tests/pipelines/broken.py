"""Pipelines with one bug each: `folio-audit pipeline auditing/tests/pipelines/broken.py:causal`."""

import math

import plain
import torch
from plain import BATCH, D_MODEL, IGNORED, SEQ_LEN, Encoder, mask, mean, target
from torch import nn
from torch.nn.functional import cross_entropy, dropout

CAUSAL = nn.Transformer.generate_square_subsequent_mask(SEQ_LEN)
OWN = ~torch.eye(SEQ_LEN, dtype=torch.bool)


def model(forward, **attributes):
    """A subclass of `Encoder` with another `forward`."""
    return type(
        "Encoder",
        (Encoder,),
        {"forward": forward, **attributes} if forward else attributes,
    )


# Layers that expect [seq_len, batch] and get [batch, seq_len].
batch_second = target(model(None, batch_first=False))
# An inverted attention mask: each position attends to itself only.
blocked_attention = target(
    model(lambda self, inputs: Encoder.forward(self, inputs, mask=OWN))
)
# A causal mask left in a masked language model.
causal = target(model(lambda self, inputs: Encoder.forward(self, inputs, mask=CAUSAL)))
# Dropout as a function, which does not know that the model is evaluated.
dropout_in_evaluation = target(
    model(lambda self, inputs: dropout(Encoder.forward(self, inputs), 0.1))
)
# Positions that are made and never added.
no_positions = target(
    model(lambda self, inputs: self.decoder(self.layers(self.embedding(inputs))))
)
# A softmax at the end of the model, before the one in the cross-entropy.
softmax_twice = target(
    model(lambda self, inputs: Encoder.forward(self, inputs).softmax(-1))
)


def label_in_decoder_loss(model, batch):
    """A decoder that sees its label: the labels are embedded and added to what it decodes."""
    logits = model(batch[0], extra=model.embedding(batch[1].clamp(min=0)))
    return mean(logits, batch[1]), logits


label_in_decoder = target(loss_and_logits=label_in_decoder_loss)


def learning_rate_zero_model(tokens):
    """A learning rate of 0, from a schedule that was never stepped."""
    model = plain.make_model(tokens)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.warmup = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, step / 1000)
    )
    return model, optimizer


def not_in_optimizer_model(tokens):
    """An optimizer that has the decoder only; the layers stay as they were initialized."""
    model = plain.make_model(tokens)
    return model, torch.optim.AdamW(model.decoder.parameters(), lr=1e-3)


learning_rate_zero = target(make_model=learning_rate_zero_model)
not_in_optimizer = target(make_model=not_in_optimizer_model)


def empty(x, tokens, training):
    """So few masks that some batches have no label: their mean is NaN."""
    selected = torch.rand(x.shape) < (0.00003 if training else 0.15)
    return torch.where(selected, tokens.mask, x), torch.where(selected, x, IGNORED)


def corrupted(x, tokens, training):
    """Labels taken after the masking."""
    inputs, labels = mask(x, tokens)
    return inputs, torch.where(labels == IGNORED, IGNORED, inputs)


def shifted(x, tokens, training):
    """Labels shifted by one, as for a causal model."""
    inputs, labels = mask(x, tokens)
    return inputs, torch.where(labels == IGNORED, IGNORED, x.roll(-1, 1))


def over_all(logits, labels):
    """A loss averaged over all positions, labelled or not."""
    return cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none"
    ).mean()


def to_next(logits, labels):
    """Logits compared with the label of the next position: a causal model's loss on a masked model."""
    return mean(logits[:, :-1], labels[:, 1:])


empty_batches = target(batches=empty)
labels_corrupted = target(batches=corrupted)
labels_shifted = target(batches=shifted)
mean_over_all = target(loss=over_all)
misaligned = target(loss=to_next)
# An ignored label of 0, which is also the newline.
ignored_label = target(
    batches=lambda x, tokens, training: mask(x, tokens, ignored=0),
    loss=lambda logits, labels: mean(logits, labels, ignore_index=0),
)
# An ignored label that the loss does not ignore: [PAD] is a class that most positions must predict.
ignored_label_counted = target(
    batches=lambda x, tokens, training: mask(x, tokens, ignored=tokens.padding)
)
# No masks in training, so the model learns to repeat its input.
unmasked_training = target(
    batches=lambda x, tokens, training: (x, x) if training else mask(x, tokens)
)


def of_windows(logits, labels):
    """The mean over windows of their means, though windows have different numbers of labels."""
    return torch.stack(
        [
            mean(window[None], row[None])
            for window, row in zip(logits, labels, strict=True)
        ]
    ).mean()


mean_of_means = target(loss=of_windows)
# The loss in bits, reported as nats.
bits = target(loss=lambda logits, labels: mean(logits, labels) / math.log(2))
unmasked_evaluation = target(
    batches=lambda x, tokens, training: mask(x, tokens) if training else (x, x.clone())
)


def leaking(**others):
    """BERT's masks with further tensors: functions of the text before masking."""

    def batches(x, tokens, training):
        inputs, labels = mask(x, tokens)
        return {"inputs": inputs, "labels": labels} | {
            name: made(x, inputs) for name, made in others.items()
        }

    return batches


def copied(x, tokens, training):
    """Replacements written one position too far to the left: the hidden character stands beside its
    [MASK]."""
    selected = torch.rand(x.shape) < 0.05
    selected[:, 0] = False
    inputs = torch.where(selected, tokens.mask, x)
    moved = selected.roll(-1, 1) & ~selected
    return torch.where(moved, x.roll(-1, 1), inputs), torch.where(selected, x, IGNORED)


def hashed(x, tokens, training):
    """Masks from a hash of the character, to be the same each time: some are always hidden, others
    never."""
    selected = x * 2654435761 % 2**32 < 0.15 * 2**32
    return torch.where(selected, tokens.mask, x), torch.where(selected, x, IGNORED)


def sorted_rows(x, tokens, training):
    """Windows in the order of their labels."""
    inputs, labels = mask(x, tokens)
    order = labels.clamp(min=0).sum(1).argsort()
    return inputs[order], labels[order]


def widened(x, tokens, training):
    """Padding up to a width that counts hidden characters."""
    inputs, labels = mask(x[:, : SEQ_LEN // 2], tokens)
    width = int((labels == x[0, 0]).sum())
    return tuple(
        nn.functional.pad(each, (0, width), value=v)
        for each, v in ((inputs, tokens.padding), (labels, IGNORED))
    )


def chosen(x, tokens, training):
    """The half of the windows whose labels are highest."""
    inputs, labels = sorted_rows(x, tokens, training)
    return inputs[BATCH // 2 :], labels[BATCH // 2 :]


def line_positions(x, inputs):
    """Positions that count from the last end of a line, hidden or not."""
    at = torch.arange(x.shape[1]).expand_as(x)
    return at - torch.where(x == x.min(), at, 0).cummax(1).values


left_neighbor = target(batches=copied)
masks_that_tell = target(batches=hashed)
order_of_labels = target(batches=sorted_rows)
width_of_labels = target(batches=widened)
sampler_of_labels = target(batches=chosen)
# Position ids that were sorted along with the text: they follow from the hidden characters.
position_ids = target(batches=leaking(position_ids=lambda x, inputs: (x + 7) % SEQ_LEN))
positions_of_lines = target(batches=leaking(position_ids=line_positions))
# A decoder whose memory is the text before masking.
text_in_batch = target(
    model(
        lambda self, inputs, text: Encoder.forward(
            self, inputs, extra=self.embedding(text)
        )
    ),
    batches=leaking(text=lambda x, inputs: x),
)
# A feature of the text before masking: how often each character occurs in its window.
extra_tensor = target(
    batches=leaking(
        extra=lambda x, inputs: nn.functional.one_hot(x, D_MODEL).sum(1, True) / 10
    )
)
# Attention to letters only, by the text before masking.
attention_of_text = target(
    batches=leaking(src_key_padding_mask=lambda x, inputs: x < x.median())
)
