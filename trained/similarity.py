"""How alike vectors of texts are: cosines, and how much of them all texts have in common."""

import numpy as np

LEAST_SHRINKAGE = 0.01


def whitened(vectors: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """Vectors `[..., d]` whose components are uncorrelated in a sample `[n, d]`, with a mean of 0 and
    a variance of 1 (Su et al. 2021). The vectors of the sample are not all equal.

    The covariance is shrunk towards a multiple of the identity, as Ledoit and Wolf (2004) estimate.
    Without that, all pairs of fewer than `d` texts would have the same cosine.
    """
    mean = sample.mean(0, dtype=np.float64)
    centered = sample - mean
    covariance = centered.T @ centered / len(centered)
    variance = np.diag(covariance).mean()
    share = shrinkage_of(centered, covariance)
    shrunk = (1 - share) * covariance
    shrunk += share * variance * np.eye(len(covariance))
    variances, axes = np.linalg.eigh(shrunk)
    matrix = axes / np.sqrt(variances) @ axes.T

    return ((vectors - mean) @ matrix).astype(np.float32)


def shrinkage_of(centered: np.ndarray, covariance: np.ndarray) -> float:
    """The estimate of Ledoit and Wolf, at least 0.01: the variance of the covariance's elements as a
    share of their squared distance from the multiple of the identity."""
    squares = np.square(covariance).sum()
    fourth_powers = np.square(np.square(centered).sum(1))
    noise = (fourth_powers.mean() - squares) / len(centered)
    distance = squares - np.trace(covariance) ** 2 / len(covariance)
    return np.clip(noise / max(distance, 1e-300), LEAST_SHRINKAGE, 1)


def units_of(vectors: np.ndarray) -> np.ndarray:
    """Vectors `[..., d]` at length 1; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-30)


def mean_cosine(vectors: np.ndarray) -> float:
    """The mean cosine over all pairs of vectors `[n, d]`."""
    n = len(vectors)
    units = units_of(vectors.astype(np.float64))
    total = np.square(units.sum(0)).sum() - np.square(units).sum()
    return total / (n * (n - 1))


def isotropy(vectors: np.ndarray) -> str:
    """The mean cosine of two texts, before and after their common part is taken away; empty if all
    vectors are equal."""
    if not np.ptp(vectors, axis=0).any():
        return ""
    plain = mean_cosine(vectors)
    centered = mean_cosine(vectors - vectors.mean(0))
    white = mean_cosine(whitened(vectors, vectors))
    return f"mean cosine of two texts: {plain:.3f}; centered {centered:.3f}; whitened {white:.3f}"


def nearest(
    query: np.ndarray, vectors: np.ndarray, most: int
) -> list[tuple[int, float]]:
    """The numbers of at most `most` vectors `[n, d]` with the highest cosines to a query `[d]`, and
    these cosines, highest first."""
    cosines = units_of(vectors) @ units_of(query)
    best = np.argsort(-cosines, kind="stable")[:most]
    return [(int(i), float(cosines[i])) for i in best]
