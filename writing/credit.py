"""Credit assignment: does a model know which of the visible characters matter?

How much a visible character matters for a masked one is how much the prediction changes if it is
hidden too: the influence KL(p || p without it) in nats. In texts of an automaton, the posterior has
an exact influence, so a model's can be compared with it, character by character.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from data.play.grammar import grammar
from data.protocol import ValidationSet, evenly_spaced
from data.vocabulary import Vocabulary
from training.evaluation import evaluating
from writing.judge import ratio
from writing.truth import TruePosterior

N_WINDOWS = 192
SEQ_LEN = 128  # the exact influences of all windows take a minute or two on one core
NEGLIGIBLE = 1e-3  # nats: characters with less do not matter
DISTANCES = (1, 2, 4, 8, 16, 32, SEQ_LEN)  # the upper ends of the classes


@dataclass(frozen=True)
class Targets:
    """One masked character per window, and the exact influence of the visible ones on it."""

    shown: Tensor  # [n_windows, seq_len] ids, with the masks of the validation protocol
    positions: Tensor  # [n_windows]
    influence: Tensor  # [n_windows, seq_len] nats; 0 where masked
    mask_token: int


def targets_of(validation: ValidationSet, vocabulary: Vocabulary) -> Targets:
    """Windows of the play with a masked character near their middle, for which a visible character
    matters. For two thirds of the masked characters none does by itself: the others tell as much.
    """
    some = validation.take(evenly_spaced(validation.n_windows, N_WINDOWS))
    windows = some.windows[:, :SEQ_LEN]
    masked = some.masked[:, :SEQ_LEN]
    distance = (torch.arange(SEQ_LEN, device=masked.device) - SEQ_LEN // 2).abs()
    positions = distance.masked_fill(~masked, SEQ_LEN).argmin(1)
    shown = windows.masked_fill(masked, vocabulary.mask_token)
    truth = TruePosterior(grammar(), vocabulary)
    exact = influence(truth, shown, positions, vocabulary.mask_token)
    matters = exact.max(1).values >= NEGLIGIBLE
    here = matters.to(shown.device)
    return Targets(shown[here], positions[here], exact[matters], vocabulary.mask_token)


@torch.no_grad()
def influence(model: Any, shown: Tensor, positions: Tensor, mask_token: int) -> Tensor:
    """The influence of each visible character on the prediction at one position per window, in nats,
    `[n_windows, seq_len]` (float64, on the CPU); 0 where `shown` `[n_windows, seq_len]` is masked.
    """
    rows = []
    for window, position in zip(shown, positions.tolist(), strict=True):
        visible = (window != mask_token).nonzero()[:, 0]
        inputs = window.repeat(len(visible) + 1, 1)  # the last row hides nothing more
        inputs[torch.arange(len(visible)), visible] = mask_token
        rows_before = torch.arange(len(inputs), device=inputs.device)
        logits = model(inputs, rows_before * len(window) + position)
        logs = logits.double().log_softmax(-1).cpu()
        probabilities = logs[-1].exp()
        change = (logs[-1] - logs[:-1]).masked_fill(probabilities == 0, 0.0)
        row = torch.zeros(len(window), dtype=torch.float64)
        row[visible.cpu()] = change @ probabilities
        rows.append(row.clamp(min=0))  # rounding makes zeros negative
    return torch.stack(rows)


def credit(model: Any, targets: Targets) -> dict[str, Any]:
    """Compare a model's influences with the exact ones.

    - `overlap`: the sum over characters of the smaller of both shares of the influence, 0 to 1;
    - `wasted`: the share of the model's influence on characters that do not matter;
    - `by_distance`: {largest distance: {`exact`, `model`, `wasted`}}, shares of the influence.

    The first two with their standard errors over windows.
    """
    shown = targets.shown
    with evaluating(model, shown.device):
        own = influence(model, shown, targets.positions, targets.mask_token)
    model_share = shares(own)
    exact_share = shares(targets.influence)
    wasted = model_share * (targets.influence < NEGLIGIBLE)
    overlap = torch.minimum(model_share, exact_share)
    counts = torch.ones(len(own))
    results: dict[str, Any] = {}
    for name, values in (("overlap", overlap), ("wasted", wasted)):
        results[name], results[f"{name}_stderr"] = ratio(values.sum(1), counts)

    columns = torch.arange(own.shape[1])
    distance = (columns - targets.positions.cpu()[:, None]).abs()
    by_distance = {}
    nearest = 1
    for farthest in DISTANCES:
        here = (nearest <= distance) & (distance <= farthest)
        of_classes = {"exact": exact_share, "model": model_share, "wasted": wasted}
        by_distance[farthest] = {
            name: float((values * here).sum(1).mean())
            for name, values in of_classes.items()
        }
        nearest = farthest + 1
    return results | {"by_distance": by_distance}


def shares(values: Tensor) -> Tensor:
    """Each character's share of the influence in its window; zeros in a window without any."""
    totals = values.sum(1, keepdim=True)
    return values / totals.masked_fill(totals == 0, 1.0)
