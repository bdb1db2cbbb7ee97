"""How surprising each character of a text is to its neighbours."""

import numpy as np
import numpy.typing as npt

SIZES = ((1, 0), (1, 1), (2, 1), (2, 2))  # characters to the left and right, smaller contexts first


def surprise(text: str) -> npt.NDArray[np.float64]:
    """-log p(character | two neighbours on each side) in nats, `[len(text)]`.

    By Witten-Bell interpolation as in `data.counting`, from counts over the text itself without the occurrence that is
    being judged: each character is as surprising as if it had not been seen.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    alphabet, ids = np.unique(codes, return_inverse=True)
    n, n_chars = len(ids), max(1, len(alphabet))
    counts = np.bincount(ids, minlength=n_chars)
    probs = (counts[ids] - 1 + 0.5) / max(1.0, n - 1 + 0.5 * n_chars)
    padded = np.concatenate([np.full(2, n_chars), ids, np.full(2, n_chars)])
    for left, right in SIZES:
        offsets = [*range(-left, 0), *range(1, right + 1)]
        context = np.zeros(n, dtype=np.int64)
        for offset in offsets:
            # Renumbering after every digit keeps the numbers small, whatever the alphabet.
            context = np.unique(context * (n_chars + 1) + padded[2 + offset : 2 + offset + n], return_inverse=True)[1]
        totals = np.bincount(context)
        pairs, pair_of, pair_counts = np.unique(context * n_chars + ids, return_inverse=True, return_counts=True)
        types = np.bincount(pairs // n_chars, minlength=len(totals))
        here, total, kinds = pair_counts[pair_of], totals[context], types[context]
        kinds = kinds - (here == 1)  # without this occurrence, its pair may be unknown
        seen = total - 1 + kinds > 0
        probs = np.where(seen, (here - 1 + kinds * probs) / np.maximum(1, total - 1 + kinds), probs)
    return -np.log(probs)
