"""The pseudo-log-likelihood of texts: of each token, given all others (Salazar et al. 2020, arXiv
1910.14659), or given all but the rest of its word (PLL-word-l2r of Kauf and Ivanova 2023, "A Better
Way to Do Masked Language Model Scoring")."""

from collections.abc import Sequence

import torch
from torch import Tensor

from data.masking.words import WORD, cut
from data.vocabulary import Vocabulary
from trained.batches import batches_by_length, padded, pieces
from trained.load import Trained
from trained.template import readable

# words and other characters, with the space before them, as tokenizers of subwords cut a text
UNIT = rf"\s?(?:{WORD.pattern}|\S)"


@torch.inference_mode()
def scores_of(
    trained: Trained, texts: Sequence[Tensor], within_words: bool = False
) -> list[float]:
    """The pseudo-log-likelihood in nats of each text of token ids `[n]`, which may be UNREADABLE:
    the sum of log p(token | all other tokens of its window).

    Each ordinary token is masked once, in the window that decides it (see `pieces`). Other tokens
    count 0. With `within_words`, the later tokens of its word are masked too: otherwise they give
    away a word of several tokens.
    """
    vocabulary = trained.vocabulary
    windows: list[Tensor] = []  # one per scored token
    columns: list[int] = []  # of the scored token, the first that is masked
    ends: list[int] = []  # of what is masked
    text_of: list[int] = []
    for number, ids in enumerate(texts):
        end_of = torch.arange(1, len(ids) + 1)
        if within_words:
            end_of = word_ends(ids, vocabulary)
        is_scored = (ids >= 0) & (ids < vocabulary.n_ordinary)
        for window, part in pieces(len(ids), trained.longest):
            scored = is_scored[part].nonzero().flatten() + part.start
            columns += (scored - window.start).tolist()
            ends += (end_of[scored] - window.start).tolist()
            windows += [ids[window]] * len(scored)
            text_of += [number] * len(scored)

    scores = [0.0] * len(texts)
    for batch in batches_by_length(windows, equal_lengths=not trained.takes_mask):
        ids, mask = padded([windows[i] for i in batch])
        rows = torch.arange(len(batch))
        column = torch.arange(ids.shape[1])
        scored = torch.tensor([columns[i] for i in batch])
        end = torch.tensor([ends[i] for i in batch])
        tokens = ids[rows, scored]
        is_masked = (column >= scored[:, None]) & (column < end[:, None])
        ids[is_masked] = vocabulary.mask_token
        padding = {} if mask is None else {"attention_mask": mask}
        positions = rows * ids.shape[1] + scored
        logits = trained.model(
            readable(ids, vocabulary.mask_token), positions, **padding
        )
        log_probs = logits[:, : vocabulary.n_ordinary].double().log_softmax(-1)
        for i, value in zip(batch, log_probs[rows, tokens].tolist(), strict=True):
            scores[text_of[i]] += value

    return scores


def word_ends(ids: Tensor, vocabulary: Vocabulary) -> Tensor:
    """For each token of a text `[n]`, the number of tokens up to the end of its word."""
    text, offsets = vocabulary.text_of(readable(ids, vocabulary.mask_token))
    lengths = torch.tensor([*map(len, cut(text, UNIT)), 1])
    word_of_character = torch.arange(len(lengths)).repeat_interleave(lengths)
    words = word_of_character[torch.arange(len(ids)) if offsets is None else offsets]
    is_last = words != torch.cat([words[1:], torch.tensor([-1])])
    ends = is_last.nonzero().flatten() + 1
    return ends[torch.searchsorted(ends, torch.arange(len(ids)), right=True)]
