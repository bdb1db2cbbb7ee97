"""Windows of several documents: which tokens see each other, and where they are in their document.

Models get the number of each token's document in its window, from 1 on, and 0 at padding.
"""

from torch import Tensor


def same_document(queries: Tensor, keys: Tensor) -> Tensor:
    """Whether each query and key are in one document, `[batch, 1, n_queries, n_keys]`, from the
    documents' numbers `[batch, n_queries]` and `[batch, n_keys]`. Padding sees itself."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def places_in(is_same: Tensor) -> Tensor:
    """The place of each token in its document, from 0 on, `[batch, 1, seq_len]`, from
    `same_document` of all tokens of windows."""
    return is_same.tril().sum(-1) - 1


def masks_of(
    documents: Tensor, positions: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The keys that are seen by each query, in the earlier layers and in the last one, which may
    have queries at `positions` only; and the places of all tokens."""
    is_same = same_document(documents, documents)
    is_same_in_last = is_same
    if positions is not None and positions.ndim == 2:
        is_same_in_last = same_document(documents.flatten()[positions], documents)
    return is_same, is_same_in_last, places_in(is_same)
