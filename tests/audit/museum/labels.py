"""Bugs in the labels: what is to be predicted, and where."""

import torch

from tests.audit.museum.exhibit import IGNORED, MASK, PAD, Pair, corrupted, drawn, exhibit, labels_of


@exhibit("labels-everywhere")
def new_labels_not_returned(x: torch.Tensor) -> Pair:
    """Labels with -100 are built but never put into the batch: the model is trained on all tokens."""
    selected = drawn(x)
    new_labels = labels_of(x, selected)
    assert new_labels.shape == x.shape
    return torch.where(selected, MASK, x), torch.where(x == PAD, IGNORED, x)


@exhibit("labels-corrupted")
def originals_by_reference(x: torch.Tensor) -> Pair:
    """The originals are remembered by reference, then the array is masked: the labels are the masked inputs."""
    inputs = x.clone()
    originals = inputs
    selected = drawn(x)
    inputs[selected] = corrupted(x, selected)[selected]
    return inputs, labels_of(originals, selected)


@exhibit("labels-shifted")
def marks_without_cls(x: torch.Tensor) -> Pair:
    """[CLS] is put before the text but not before the marks of the masked tokens: labels stand one position off."""
    selected = drawn(x)
    inputs = corrupted(x, selected)
    marks = torch.cat([selected[:, 1:], torch.zeros(len(x), 1, dtype=torch.bool)], 1)
    return inputs, labels_of(x, marks)


@exhibit("argument-modified")
def masked_in_place(x: torch.Tensor) -> Pair:
    """The batch is masked in place, and the caller goes on to use it as the unmasked text."""
    selected = drawn(x)
    labels = labels_of(x, selected)
    x.copy_(corrupted(x, selected))
    return x, labels


@exhibit("padding-is-character", ignored=0)
def zero_is_no_label(x: torch.Tensor) -> Pair:
    """Labels above 0 count as labels: the token whose id is 0 is never learnt."""
    selected = drawn(x)
    return corrupted(x, selected), torch.where(selected, x, 0)


@exhibit("wrong-ignored-label", ignored=IGNORED)
def ignored_label_of_an_old_version(x: torch.Tensor) -> Pair:
    """Unselected positions have the label -1, which the loss used to ignore; it now ignores -100."""
    selected = drawn(x)
    return corrupted(x, selected), torch.where(selected, x, -1)


@exhibit("nothing-hidden")
def evaluation_without_masks(x: torch.Tensor) -> Pair:
    """Evaluation passes the text itself as inputs and labels: perplexity 1.0."""
    return x.clone(), x.clone()
