"""Two checks of the scaling law on the play, whose lowest possible loss is known exactly.

python -m benchmarks.floors

The first fits Hoffmann's law E + A N^-a + B D^-b, as others must, to the runs of `benchmarks.scaling` up to a compute,
with E unknown: how far is it from the floor? The second has the two statistics from which Cagnetta et al. (2026) derive
the exponent of data: how the entropy of a character falls with the characters around it that are known, and how fast
the correlation of two characters falls with their distance. Both are exact but for the sampling of windows.
"""

import json

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp

from benchmarks.command import RESULTS
from data.play.entropy import entropy_rate
from data.play.floor import Floor, channel
from data.play.grammar import grammar, play
from planning.law import Run, fit

LIMITS = (1e10, 2.5e10, 6e10, 1e12)  # weights times characters
STARTS = [
    (a, b, e, x, y) for a in (0, 8) for b in (4, 12) for e in (-2.0, -0.6) for x in (0.3, 1.0) for y in (0.4, 1.2)
]
NARROW = 1e-3  # Huber's delta, as in Hoffmann et al. (2022)
CONTEXTS, N_WINDOWS, SIDE = (1, 2, 3, 4, 6, 8, 12, 16, 24), 2_000, 24


def hoffmann(runs: np.ndarray, seed: int | None = None) -> float:
    """E of the best fit, of the runs or of as many drawn with replacement."""
    if seed is not None:
        runs = runs[np.random.default_rng(seed).integers(len(runs), size=len(runs))]
    size, length, loss = np.log(runs).T

    def cost(x: np.ndarray) -> float:
        terms = [x[0] - x[3] * size, x[1] - x[4] * length, np.full_like(size, x[2])]
        error = np.abs(logsumexp(terms, axis=0) - loss)
        return float(np.where(error < NARROW, error**2 / 2, NARROW * (error - NARROW / 2)).sum())

    best = min((minimize(cost, start, method="L-BFGS-B") for start in STARTS), key=lambda found: found.fun)
    return float(np.exp(best.x[2]))


def floors() -> None:
    trials = [
        each
        for name in ("scaling", "predictions")
        for each in json.loads((RESULTS / "amd-epyc-2-cores" / f"{name}.json").read_text())["trials"]
    ]
    found = [(t["n_weights"], t["n_chars"], t["loss"]) for t in trials if t.get("text", "the play") == "the play"]
    runs = np.array(sorted(found, key=lambda run: run[0] * run[1]))
    for limit in LIMITS:
        some = runs[runs[:, 0] * runs[:, 1] <= limit]
        drawn = np.quantile([hoffmann(some, seed) for seed in range(50)], (0.1, 0.9))
        law = fit([Run(int(n), int(d), loss) for n, d, loss in some])
        low, middle, high = np.quantile(law.floors, (0.1, 0.5, 0.9))
        print(
            f"{limit:.1e}: {len(some)} runs, lowest {some[:, 2].min():.3f}; E {hoffmann(some):.3f} ({drawn[0]:.3f} to "
            f"{drawn[1]:.3f}); with priors {middle:.3f} ({low:.3f} to {high:.3f})",
            flush=True,
        )


def statistics() -> None:
    floor, n = Floor(grammar()), Floor(grammar()).n_chars
    states = torch.zeros(len(floor.stationary), n, dtype=torch.float64)
    states[torch.arange(len(states)), floor.char_of_state] = floor.stationary
    of_char = torch.zeros(n, dtype=torch.float64).index_add_(0, floor.char_of_state, floor.stationary)
    correlations = []
    for _ in range(max(CONTEXTS)):
        states = floor.transposed @ states
        joint = torch.zeros(n, n, dtype=torch.float64).index_add_(0, floor.char_of_state, states)
        correlations.append(float(torch.linalg.matrix_norm(joint.T - of_char[:, None] * of_char, 2)))
    text, random = play(2_000_000, seed=99), torch.Generator().manual_seed(0)
    ids = torch.tensor([grammar().alphabet.index(each) for each in text])
    starts = torch.randint(len(ids) - 2 * SIDE - 1, (N_WINDOWS, 1), generator=random)
    windows = ids[starts + torch.arange(2 * SIDE + 1)]
    steps = [[-total.log() for _, total in floor._forward(some, channel(n))] for some in windows.split(100)]
    following = torch.stack([torch.cat(each) for each in zip(*steps, strict=True)])
    hidden = torch.rand(windows.shape, generator=random) < 0.15
    hidden[:, SIDE] = True
    masked = []
    for k in (*CONTEXTS, SIDE):
        part = slice(SIDE - k, SIDE + k + 1)
        wanted = torch.zeros_like(hidden[:, part])
        wanted[:, k] = True
        posteriors = floor.posteriors(windows[:, part].masked_fill(hidden[:, part], n), wanted)
        masked.append(-posteriors.gather(1, windows[:, SIDE : SIDE + 1])[:, 0].log())
    rate = entropy_rate(grammar())
    rows = [
        (k, correlations[k - 1], float(following[k].mean()) - rate, float((masked[i] - masked[-1]).mean()))
        for i, k in enumerate(CONTEXTS)
    ]
    for row in rows:
        print("n = {}: correlation {:.4f}, next character {:.4f}, masked character {:.4f}".format(*row))
    used = np.log(np.array([row for row in rows if row[0] <= 12]))
    beta, *gammas = (-np.polyfit(used[:, 0], used[:, i], 1)[0] for i in (1, 2, 3))
    print(
        f"beta {beta:.2f}, gamma {gammas[0]:.2f} and {gammas[1]:.2f}, gamma / 2 beta {gammas[0] / 2 / beta:.2f} and "
        f"{gammas[1] / 2 / beta:.2f}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    statistics()
    floors()
