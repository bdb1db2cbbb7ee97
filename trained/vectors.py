"""Vectors of texts: the mean over the tokens of a text, or the vector of its `[CLS]`."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from configs.command_line.scripts import number
from configs.hugging_face import ARCHITECTURE
from configs.keys import ConfigError
from data.tasks.task import OF_TOKENS
from runs.run_folder import RunFolder
from trained.batches import batches_by_length, padded
from trained.classifier import POOLS, Classifier, features_of
from trained.load import Trained
from trained.template import readable

MEAN = "mean"
CLS = "cls"


def add_options(parser: ArgumentParser) -> None:
    """Add --pooling and --layer."""
    pooling = (
        "the vector of a text: the mean over its tokens (default), or that of [CLS]"
    )
    parser.add_argument("--pooling", choices=(MEAN, CLS), help=pooling)
    layer = (
        "read vectors after layer N, as if the encoder ended there (default: the last)"
    )
    parser.add_argument("--layer", metavar="N", type=number(int, 1), help=layer)


def check_options(run: RunFolder, pooling: str | None, layer: int | None) -> None:
    """Raise ConfigError if the model of a run, which is not loaded, has no such vectors."""
    values = run.config({"model.architecture": str, "model.n_layers": int})
    n_layers = values["model.n_layers"]
    if layer is not None and layer > n_layers:
        raise ConfigError(f"--layer {layer}: the model has {n_layers} layers")
    if pooling == CLS and values["model.architecture"] != ARCHITECTURE:
        raise ConfigError(
            "--pooling cls: only runs with --init-from hf:FOLDER have [CLS]: use mean"
        )


def cut_after(encoder: Any, layer: int | None) -> None:
    """Make an encoder end after a layer."""
    if layer is None:
        return
    del encoder.layers[layer:]
    if hasattr(encoder, "base"):
        encoder.base.config.num_hidden_layers = layer  # ALBERT repeats one layer


@torch.inference_mode()
def vectors_of(
    trained: Trained, texts: Sequence[Tensor], pooling: str | None = None
) -> np.ndarray:
    """The vectors of texts of token ids `[n]`, which may be UNREADABLE: float32 `[n_texts,
    d_model]`.

    A text of more than `longest` tokens is read in windows of about equal length. Its vector is the
    mean of theirs, weighted by their tokens. An empty text is read as `[MASK]`.
    """
    mask_token = trained.vocabulary.mask_token
    windows: list[Tensor] = []
    text_of: list[int] = []
    shares: list[float] = []
    for i, text in enumerate(texts):
        ids = readable(text, mask_token)
        if not len(ids):
            ids = torch.tensor([mask_token])
        n_windows = -(-len(ids) // trained.longest)
        for window in ids.tensor_split(n_windows):
            windows.append(window)
            text_of.append(i)
            shares.append(len(window) / len(ids))

    vectors = np.zeros((len(texts), trained.encoder.d_model), np.float32)
    for batch in batches_by_length(windows):
        ids, mask = padded([windows[i] for i in batch])
        pooled = pool(trained.encoder, ids, mask, pooling)
        for i, vector in zip(batch, pooled.numpy(), strict=True):
            vectors[text_of[i]] += shares[i] * vector

    return vectors


@torch.inference_mode()
def mixed_vectors(classifier: Classifier, texts: Sequence[Tensor]) -> np.ndarray:
    """The vectors of texts of token ids `[n]`: the mean over tokens in each layer, mixed by the
    shares that the classifier gives to the layers; float32 `[n_texts, d_model]`."""
    means = classifier.means(features_of(classifier, texts))
    shares = layer_shares(classifier)
    return (means * shares[:, None]).sum(1).numpy()


def layer_shares(classifier: Classifier) -> Tensor:
    """The share of each layer, the embedding first, in what a classifier of texts reads: the norm of
    its weights on the mean over tokens, divided by the sum over layers; `[n_layers + 1]`.

    Raises ConfigError for a classifier of characters or words, which reads no means.
    """
    if classifier.kind in OF_TOKENS:
        raise ConfigError("--mix: this classifier labels parts of texts: use --layer")
    weight = classifier.output.weight.detach()
    n_before = weight.shape[1] - POOLS * classifier.n_features  # cosines of pairs
    norms = classifier.means(weight[:, n_before:]).norm(dim=(0, 2))
    return norms / norms.sum()


def pool(encoder: Any, ids: Tensor, mask: Tensor | None, pooling: str | None) -> Tensor:
    """The vectors `[batch, d_model]` of windows of token ids `[batch, seq_len]`; the mean is also
    over the special tokens that the encoder adds."""
    if hasattr(encoder, "arrangement"):
        arranged = encoder.arrangement(ids, mask)
        x = encoder.whole(ids, mask, arranged)
        mask = arranged.documents
    else:
        x = encoder(ids, attention_mask=mask)
    if pooling == CLS:
        return x[:, 0]
    if mask is None:
        return x.mean(1)
    is_token = (mask != 0).unsqueeze(-1)
    return (x * is_token).sum(1) / is_token.sum(1)
