"""Classifiers of characters, words, texts and pairs of texts: a linear layer on what a masked
language model says of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from data.tasks.task import OF_TOKENS, PAIR
from trained.batches import batches_by_length, padded
from trained.inside import recorded_inputs

POOLS = 3  # of the characters of a text: their mean, their maximum, and the first one
LARGEST_ALPHABET = 512  # whose probabilities are read: those of more take too long


class Classifier(nn.Module):
    """Token ids `[batch, length]` to scores: of characters `[batch, length, n_labels]`, of texts
    `[batch, n_labels]`, or of pairs `[batch / 2, n_labels]`, which are rows 0 and 1, 2 and 3, and
    so on.

    A character has the vectors of all layers. With at most 512 tokens it also has its surprise:
    -log p(character | the whole text, itself included). A model that was trained with random
    characters among the visible ones is surprised by those that do not fit. For labels of
    characters or words, the log-probabilities of all tokens, here and at the next token, say what
    would fit. A word has the features of its last token. A text has the mean and the maximum over
    its characters, and its first one. A text of more than `longest` characters is read in windows,
    and has these of all of them. A pair has |u - v| of its two texts, which are read apart (Reimers
    and Gurevych 2019), and the cosine between their means in each layer, less `center`.
    """

    # the inputs that a probe has chosen to read, and its inverse penalty
    chosen: Any = None
    weights: Tensor | None = None  # [n_labels], in the loss
    # [n_layers, d_model]: the mean over the labelled texts, because all texts have much in common
    center: Tensor

    def __init__(
        self, model: Any, n_labels: int, kind: str, longest: int | None = None
    ):
        super().__init__()
        self.model = model
        self.kind = kind
        self.longest = longest
        encoder = model.encoder
        self.n_layers = getattr(encoder, "n_layers", len(encoder.layers)) + 1
        n_tokens = len(model.encoder.embedding.weight)
        self.d_model = model.encoder.d_model
        self.reads_surprise = n_tokens <= LARGEST_ALPHABET
        self.reads_expected = kind in OF_TOKENS and self.reads_surprise
        self.n_features = self.n_layers * self.d_model  # of a character
        self.n_features += self.reads_surprise + 2 * n_tokens * self.reads_expected
        self.register_buffer("center", torch.zeros(self.n_layers, self.d_model))
        n_inputs = self.n_features
        if kind not in OF_TOKENS:
            n_inputs *= POOLS
        if kind == PAIR:
            n_inputs += self.n_layers
        self.output = nn.Linear(n_inputs, n_labels)

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        return self.scores(self.features(ids, mask))

    def features(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """The features of characters `[batch, length, n_features]`, or of texts `[batch, POOLS *
        n_features]`."""
        encoder = self.model.encoder
        with recorded_inputs(encoder.layers) as calls:
            last = encoder(ids, attention_mask=mask)
        layers = [encoder.at_tokens(x, ids, mask) for x, *_ in calls]
        x = torch.cat([*layers, last], -1)
        if self.reads_surprise:
            expected = self.model.predict(last).log_softmax(-1)
            x = torch.cat([x, -expected.gather(-1, ids.unsqueeze(-1))], -1)
        if self.reads_expected:
            of_text = expected if mask is None else expected * mask.unsqueeze(-1)
            x = torch.cat([x, expected, F.pad(of_text[:, 1:], (0, 0, 0, 1))], -1)

        if self.kind in OF_TOKENS:
            return x
        if mask is None:
            return torch.cat([x.mean(1), x.amax(1), x[:, 0]], -1)
        is_text = mask.unsqueeze(-1)
        # padding may be on the left
        first = (x * (is_text & (is_text.cumsum(1) == 1))).sum(1)
        mean = (x * is_text).sum(1) / is_text.sum(1)

        return torch.cat([mean, x.masked_fill(~is_text, -torch.inf).amax(1), first], -1)

    def scores(self, features: Tensor) -> Tensor:
        """The scores of the labels for features of characters or texts, in float32."""
        with torch.autocast("cpu", enabled=False):
            return self.output(self.inputs(features.float()))

    def inputs(self, features: Tensor) -> Tensor:
        """The inputs of the linear layer for features of characters or texts."""
        if self.kind != PAIR:
            return features
        means = self.means(features) - self.center
        cosines = F.cosine_similarity(means[0::2], means[1::2], dim=-1)
        return torch.cat([cosines, (features[0::2] - features[1::2]).abs()], -1)

    def means(self, features: Tensor) -> Tensor:
        """The means of texts in each layer, `[n_texts, n_layers, d_model]`."""
        shape = (self.n_layers, self.d_model)
        return features[:, : self.n_layers * self.d_model].unflatten(1, shape)

    def windows_of(self, texts: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Texts of token ids, or of labels of characters, in windows of at most `longest` and of
        about equal length; and the number of windows of each text `[n_texts]`."""
        windows: list[Tensor] = []
        counts = []
        for text in texts:
            n = -(-len(text) // (self.longest or len(text)))
            windows += text.tensor_split(n)
            counts.append(n)
        return windows, torch.tensor(counts)

    def together(
        self, features: Tensor, windows: Sequence[Tensor], counts: Tensor
    ) -> Tensor:
        """The features of texts `[n_texts, POOLS * n_features]` from those of their windows."""
        if len(counts) == len(windows):
            return features
        n_texts = len(counts)
        text = torch.repeat_interleave(torch.arange(n_texts), counts)
        lengths = torch.tensor([len(window) for window in windows])
        shares = (
            lengths / torch.zeros(n_texts).index_add(0, text, lengths.float())[text]
        )
        mean, largest, first = features.chunk(POOLS, 1)
        zeros = mean.new_zeros(n_texts, self.n_features)
        weighted = (mean * shares[:, None]).to(mean.dtype)
        rows = text[:, None].expand_as(largest)
        pooled = [
            zeros.index_add(0, text, weighted),
            zeros.scatter_reduce(0, rows, largest, "amax", include_self=False),
            first[counts.cumsum(0) - counts],
        ]
        return torch.cat(pooled, 1)


@torch.inference_mode()
def of_windows(
    classifier: Classifier, windows: Sequence[Tensor], function: Any
) -> Tensor:
    """The values of `function` for each window, or for each character, `[n, ...]`, from padded
    batches of similar lengths."""
    results: dict[int, Tensor] = {}
    for batch in batches_by_length(windows):
        values = function(*padded([windows[i] for i in batch]))
        for i, value in zip(batch, values, strict=True):
            is_text = classifier.kind not in OF_TOKENS
            results[i] = value[None] if is_text else value[: len(windows[i])]

    return torch.cat([results[i] for i in range(len(windows))])


@torch.inference_mode()
def features_of(classifier: Classifier, texts: Sequence[Tensor]) -> Tensor:
    """The features of characters or of texts, `[n, n_features]` or `[n, POOLS * n_features]`."""
    windows, counts = classifier.windows_of(texts)
    features = of_windows(classifier, windows, classifier.features)
    if classifier.kind in OF_TOKENS:
        return features
    return classifier.together(features, windows, counts)


@torch.inference_mode()
def scores_of(
    classifier: Classifier, texts: Sequence[Tensor], features: Tensor | None = None
) -> Tensor:
    """The scores of the labels, `[n_units, n_labels]`. `features` are those of the texts, if they
    are known."""
    if (
        classifier.kind in OF_TOKENS
    ):  # all features of all characters would not fit into memory
        windows, _ = classifier.windows_of(texts)
        return of_windows(classifier, windows, classifier)
    if features is None:
        features = features_of(classifier, texts)
    return classifier.scores(features)
