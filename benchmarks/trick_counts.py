"""Counting as a prior on the logits, for benchmarks/tricks.py.

Contexts are visible characters around a masked one, as in `model.ngrams`. Each contributes to the logit of character c

    weight(total) * log(1 + count(c) / (smoothing * p(c)))

where count(c) is how often c stands in this context in the training text, total is the sum over c, and p(c) is the
frequency of c. The weights and the smoothing are learned. A context that is not in the training text, such as one with
`[MASK]` in it, contributes 0, so shorter contexts decide.

Each training character is itself in the counts. Counting it would make the model trust counts too much, so its own
occurrence is subtracted. `leave_one_out` passes the original characters for this.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.trick_models import Modern
from configs.masking import MaskingConfigs, build_masker
from configs.model import ModelConfigs, option
from data.corpus import TINY_SHAKESPEARE, load_corpus
from data.masking import IGNORED_LABEL, MaskedBatch, Masker
from data.masking.segmenters import Characters
from data.vocabulary import Vocabulary
from model.ngrams import NGRAMS, Ngram

CONTEXTS: tuple[Ngram, ...] = (
    *((-2,), (-1,), (1,), (2,)),
    *NGRAMS,
    *((-3, -2, -1, 1, 2), (-2, -1, 1, 2, 3), (-3, -2, -1, 1, 2, 3)),
)
BUCKETS = 12  # of totals: 0, 1, 2 to 3, 4 to 7, ...
FIRST_WEIGHT = 4 / len(CONTEXTS)  # contexts overlap: larger weights would count the same evidence too often


class OriginalsKept:
    """A masker that encodes the original ids in the inputs: input + n_tokens * (1 + original)."""

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

    frequencies: Tensor  # [n_chars]
    places: Tensor  # [2 * reach + 1, n_contexts]
    known: Tensor  # [n_known] the numbers of all contexts in the text, sorted
    table: Tensor  # [n_known, n_chars] how often each character stands in them
    borders: Tensor  # [BUCKETS - 1]

    def __init__(self, training: Tensor, *, n_chars: int, n_tokens: int):
        """`training` `[n_training_chars]` are the ids of the text."""
        super().__init__()
        self.n_chars, self.n_tokens = n_chars, n_tokens
        self.reach = max(abs(offset) for context in CONTEXTS for offset in context)
        offsets = range(-self.reach, self.reach + 1)
        base = n_tokens + 2  # a digit is 0 for a position outside of the context, else 1 + the symbol there
        places = torch.tensor([[base**i * (offset in ngram) for ngram in CONTEXTS] for i, offset in enumerate(offsets)])
        self.register_buffer("places", places, persistent=False)
        frequencies = (torch.bincount(training, minlength=n_chars) + 0.5) / (len(training) + 0.5 * n_chars)
        self.register_buffer("frequencies", frequencies, persistent=False)
        known, counts = [], []
        symbols = self._around(training.unsqueeze(0), torch.arange(len(training)))
        for i, context in enumerate(CONTEXTS):
            inside = slice(max(0, -min(context)), len(training) - max(0, max(context)))
            numbers, which = (symbols[inside] @ places[:, i]).unique(return_inverse=True)
            pairs = which * n_chars + training[inside]
            known.append(numbers)
            of_pairs = torch.bincount(pairs, minlength=len(numbers) * n_chars).clamp(max=2**15 - 1)
            counts.append(of_pairs.view(-1, n_chars).short())
        order = torch.cat(known).argsort()
        self.register_buffer("known", torch.cat(known)[order], persistent=False)
        self.register_buffer("table", torch.cat(counts)[order], persistent=False)
        self.register_buffer("borders", 2.0 ** torch.arange(BUCKETS - 1), persistent=False)
        self.weights = nn.Parameter(torch.full((len(CONTEXTS), BUCKETS), FIRST_WEIGHT))
        self.log_smoothing = nn.Parameter(torch.zeros(len(CONTEXTS)))

    def _around(self, ids: Tensor, positions: Tensor) -> Tensor:
        """1 + the symbols around `positions`, indices into `ids.flatten()`: `[n, 2 * reach + 1]`."""
        seq_len, reach = ids.shape[1], self.reach
        padded = F.pad(ids, (reach, reach), value=self.n_tokens).flatten()
        first = positions // seq_len * (seq_len + 2 * reach) + positions % seq_len
        return 1 + padded[first.unsqueeze(1) + torch.arange(2 * reach + 1, device=ids.device)]

    def counts(self, inputs: Tensor, positions: Tensor, originals: Tensor | None) -> Tensor:
        """How often each character stands in each context of `positions`: `[n_masked, n_contexts, n_chars]`.

        With `originals`, `inputs` before they were masked, each position's own occurrence is not counted. It is in the
        counts only if the context shows its original characters.
        """
        numbers = (self._around(inputs, positions).unsqueeze(-1) * self.places).sum(1)  # [n_masked, n_contexts]
        row = torch.searchsorted(self.known, numbers).clamp(max=len(self.known) - 1)
        is_known = self.known[row] == numbers
        counts = self.table[row].float() * is_known.unsqueeze(-1)
        if originals is None:
            return counts
        is_own = is_known & (numbers == (self._around(originals, positions).unsqueeze(-1) * self.places).sum(1))
        own = F.one_hot(originals.flatten()[positions].clamp(min=0), self.n_chars)
        return counts - is_own.unsqueeze(-1) * own.unsqueeze(1)

    def forward(self, inputs: Tensor, positions: Tensor, originals: Tensor | None = None) -> Tensor:
        counts = self.counts(inputs, positions, originals).clamp(min=0.0)
        buckets = torch.bucketize(counts.sum(-1), self.borders, right=True)  # [n_masked, n_contexts]
        weights = self.weights.gather(1, buckets.t())  # [n_contexts, n_masked]
        logs = torch.log1p(counts / (self.log_smoothing.exp()[:, None] * self.frequencies))
        logits = self.frequencies.log() + torch.einsum("kn,nkc->nc", weights, logs)
        return F.pad(logits, (0, self.n_tokens - self.n_chars))


class WithCounts(Modern):
    """`modern` with counting as a prior on its logits."""

    prior: CountingPrior

    def __init__(self, c: ModelConfigs, prior: CountingPrior):
        super().__init__(c)
        self.prior = prior

    def forward(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """In training, `inputs` contain the original ids: see `OriginalsKept`. Ids without them count as unknown."""
        n_tokens, originals = self.prior.n_tokens, None
        if self.training:
            originals, inputs = inputs // n_tokens - 1, inputs % n_tokens
        if positions is None:
            positions = torch.arange(inputs.numel(), device=inputs.device)
        return super().forward(inputs, positions) + self.prior(inputs, positions.flatten(), originals)


@option(ModelConfigs.architecture)
def counting_prior(c: ModelConfigs) -> nn.Module:
    """Counts of tiny Shakespeare's training part; needs masking.strategy=leave_one_out."""
    corpus = load_corpus(TINY_SHAKESPEARE)
    vocabulary = Vocabulary(corpus.characters)
    prior = CountingPrior(vocabulary.encode(corpus.training), n_chars=vocabulary.n_ordinary, n_tokens=c.n_tokens)
    return WithCounts(c, prior)
