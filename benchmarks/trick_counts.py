"""Counting as a prior on the logits, for benchmarks/tricks.py.

Contexts are visible characters around a masked one, as in `model.ngrams`. Each contributes to the logit of character c

    weight(total) * log(1 + count(c) / (smoothing * p(c)))

where count(c) is how often c stands in this context in the training text, total is the sum over c, and p(c) is the
frequency of c. The weights and the smoothing are learned. A context that is not in the training text, such as one with
`[MASK]` in it, contributes 0, so shorter contexts decide.

A character of the training text is in the counts itself. Its own occurrence would teach the model to trust counts that
are not as good on other text, so it is taken out: `leave_one_out` hands the model the original characters for that.
"""

from typing import Any

import torch
from labml.configs import option
from torch import Tensor, nn
from torch.nn import functional as F

from configs.masking import MaskingConfigs, build_masker
from configs.model import ModelConfigs, modern
from data.corpus import TINY_SHAKESPEARE, load_corpus
from data.masking import IGNORED_LABEL, MaskedBatch, Masker
from data.masking.segmenters import Characters
from data.vocabulary import Vocabulary
from model.masked_language_model import MaskedLanguageModel
from model.modern import ModernEncoder
from model.ngrams import NGRAMS, Ngram

CONTEXTS: tuple[Ngram, ...] = (
    *((-2,), (-1,), (1,), (2,)),
    *NGRAMS,
    *((-3, -2, -1, 1, 2), (-2, -1, 1, 2, 3), (-3, -2, -1, 1, 2, 3)),
)
BUCKETS = 12  # of totals: 0, 1, 2 to 3, 4 to 7, ...
FIRST_WEIGHT = 0.2  # of 0.05, 0.1, 0.2 and 0.4 the best by the validation loss of the counts alone


class OriginalsKept:
    """A masker that adds n_tokens * (1 + original id) to each input, for models that take it off again in training."""

    def __init__(self, masker: Masker, n_tokens: int):
        self.masker = masker
        self.n_tokens = n_tokens

    def __call__(self, *arguments: Any) -> MaskedBatch:
        batch = self.masker(*arguments)
        inputs = batch.inputs.flatten()
        labels = torch.where(batch.labels == IGNORED_LABEL, inputs[batch.positions], batch.labels)
        originals = inputs.index_put((batch.positions,), labels)
        return batch._replace(inputs=batch.inputs + self.n_tokens * (1 + originals.view_as(batch.inputs)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.masker, name)


@option(MaskingConfigs.strategy)
def leave_one_out(c: MaskingConfigs) -> OriginalsKept:
    """Single characters, for models with counts."""
    return OriginalsKept(build_masker(c, Characters()), c.vocabulary.n_tokens)


class CountingPrior(nn.Module):
    """Logits `[n_masked, n_tokens]` from counts of the training text."""

    frequencies: Tensor
    borders: Tensor

    def __init__(self, training: Tensor, *, n_chars: int, n_tokens: int):
        """`training` `[n_training_chars]` are the ids of the text."""
        super().__init__()
        self.n_chars, self.n_tokens = n_chars, n_tokens
        self.reach = max(abs(offset) for context in CONTEXTS for offset in context)
        frequencies = (torch.bincount(training, minlength=n_chars) + 0.5) / (len(training) + 0.5 * n_chars)
        self.register_buffer("frequencies", frequencies, persistent=False)
        for i, context in enumerate(CONTEXTS):
            positions = torch.arange(max(0, -min(context)), len(training) - max(0, max(context)))
            numbers, which = self._numbers(training, positions, context).unique(return_inverse=True)
            pairs = which * n_chars + training[positions]
            counts = torch.bincount(pairs, minlength=len(numbers) * n_chars).view(-1, n_chars)
            counts = counts.to(torch.uint8 if counts.max() < 256 else torch.int32)
            self.register_buffer(f"numbers_{i}", numbers, persistent=False)
            self.register_buffer(f"counts_{i}", counts, persistent=False)
        self.register_buffer("borders", 2.0 ** torch.arange(BUCKETS - 1), persistent=False)
        self.weights = nn.Parameter(torch.full((len(CONTEXTS), BUCKETS), FIRST_WEIGHT))
        self.log_smoothing = nn.Parameter(torch.zeros(len(CONTEXTS)))

    def _numbers(self, symbols: Tensor, positions: Tensor, context: Ngram) -> Tensor:
        """The contexts of positions in `symbols` `[n]` as numbers."""
        numbers = torch.zeros_like(positions)
        for offset in context:
            numbers = numbers * (self.n_tokens + 1) + symbols[positions + offset]
        return numbers

    def counts(self, inputs: Tensor, positions: Tensor, originals: Tensor | None) -> Tensor:
        """How often each character stands in each context of `positions`: `[n_masked, n_contexts, n_chars]`.

        With `originals`, `inputs` before they were masked, each position's own occurrence is not counted. It is in the
        counts only if the context shows its original characters.
        """
        seq_len = inputs.shape[1]
        rows, columns = positions // seq_len, positions % seq_len
        at = rows * (seq_len + 2 * self.reach) + self.reach + columns
        shown = F.pad(inputs, (self.reach, self.reach), value=self.n_tokens).flatten()
        original = None if originals is None else F.pad(originals, (self.reach, self.reach)).flatten()
        found = []
        for i, context in enumerate(CONTEXTS):
            known, table = getattr(self, f"numbers_{i}"), getattr(self, f"counts_{i}")
            numbers = self._numbers(shown, at, context)
            row = torch.searchsorted(known, numbers).clamp(max=len(known) - 1)
            is_known = known[row] == numbers
            counts = table[row].float() * is_known[:, None]
            if original is not None:
                own = is_known & (numbers == self._numbers(original, at, context))
                counts = counts - own[:, None] * F.one_hot(original[at].clamp(min=0), self.n_chars)
            found.append(counts)
        return torch.stack(found, dim=1)

    def forward(self, inputs: Tensor, positions: Tensor, originals: Tensor | None = None) -> Tensor:
        counts = self.counts(inputs, positions, originals).clamp(min=0.0)
        buckets = torch.bucketize(counts.sum(-1), self.borders, right=True)  # [n_masked, n_contexts]
        weights = self.weights.gather(1, buckets.t())  # [n_contexts, n_masked]
        logs = torch.log1p(counts / (self.log_smoothing.exp()[:, None] * self.frequencies))
        logits = self.frequencies.log() + torch.einsum("kn,nkc->nc", weights, logs)
        return F.pad(logits, (0, self.n_tokens - self.n_chars))


class WithCounts(MaskedLanguageModel):
    """`modern` with counting as a prior on its logits."""

    prior: CountingPrior

    def __init__(self, encoder: ModernEncoder, prior: CountingPrior):
        super().__init__(encoder)
        self.prior = prior

    def forward(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """In training, `inputs` contain the original ids: see `OriginalsKept`. Ids without them count as unknown."""
        n_tokens, originals = self.prior.n_tokens, None
        if self.training:
            originals, inputs = inputs // n_tokens - 1, inputs % n_tokens
        if positions is None:
            positions = torch.arange(inputs.numel(), device=inputs.device)
        return super().forward(inputs, positions) + self.prior(inputs, positions, originals)


@option(ModelConfigs.architecture)
def counting_prior(c: ModelConfigs) -> nn.Module:
    """Counts of tiny Shakespeare's training part; needs masking.strategy=leave_one_out."""
    corpus = load_corpus(TINY_SHAKESPEARE)
    vocabulary = Vocabulary(corpus.characters)
    prior = CountingPrior(vocabulary.encode(corpus.training), n_chars=vocabulary.n_chars, n_tokens=c.n_tokens)
    return WithCounts(modern(c).encoder, prior)
