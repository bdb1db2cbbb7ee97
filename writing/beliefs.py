"""Linear probes of a model's residual stream for the grammar's exact posterior.

Shai et al. (2024, arXiv 2405.15943) found that transformers trained on text from a hidden Markov
model represent the posterior over its states linearly, left to right. Here the text has holes, and
the posterior is given both sides.
"""

from typing import Any

import torch
from torch import Tensor

from trained.inside import recorded_inputs
from training.evaluation import evaluating
from writing.truth import TruePosterior

DISTINCTIONS = ("word", "number", "sentence", "topic", "speaker")


def exact_beliefs(
    truth: TruePosterior, inputs: Tensor, masked: Tensor
) -> dict[str, Tensor]:
    """The exact posterior over the values of each distinction, `[n_masked, n_values]`, in the order
    of `masked.nonzero()`. `inputs` and `masked` (bool) are `[n_windows, seq_len]`.
    """
    shown = truth.to_floor(inputs)
    return {
        name: truth.floor.beliefs(shown, masked.cpu(), name) for name in DISTINCTIONS
    }


def residual_streams(model: Any, inputs: Tensor, masked: Tensor) -> dict[str, Tensor]:
    """The residual stream at the masked positions, `[n_masked, d_model]`, after the embedding and
    after each layer.

    The model must be a `modern`. Leaves it in its mode.
    """
    layers = model.encoder.layers
    with (
        evaluating(model, inputs.device),
        recorded_inputs([*layers, model.encoder.final_norm]) as calls,
    ):
        model.encoder(inputs)  # at all positions

    names = ["embedding", *(f"layer {number}" for number in range(1, len(layers) + 1))]
    return {
        name: stream[masked] for name, (stream, *_) in zip(names, calls, strict=True)
    }


def probe(
    streams: dict[str, Tensor], beliefs: dict[str, Tensor], masked: Tensor
) -> dict[str, dict[str, float]]:
    """R² of linear probes from each layer's stream to each distinction's posterior: {distinction:
    {layer: R²}}.

    The probe is least squares with an intercept, fitted on every second window of `masked`
    `[n_windows, seq_len]` and measured on the others: R² = 1 - squared error / squared deviation
    from the mean, each summed over the values.
    """
    fitted = (masked.nonzero()[:, 0] % 2 == 0).cpu()
    results = {}
    for name, belief in beliefs.items():
        results[name] = {
            layer: _r_squared(stream.cpu(), belief, fitted)
            for layer, stream in streams.items()
        }

    return results


def _r_squared(stream: Tensor, belief: Tensor, fitted: Tensor) -> float:
    features = torch.cat(
        [stream.double(), torch.ones(len(stream), 1, dtype=torch.float64)], dim=1
    )
    # The stream of an embedding is the same at every [MASK]: "gelsd" accepts features that depend
    # on each other.
    weights = torch.linalg.lstsq(
        features[fitted], belief[fitted], driver="gelsd"
    ).solution
    measured = belief[~fitted]
    error = (measured - features[~fitted] @ weights).square().sum()

    return float(1 - error / (measured - measured.mean(0)).square().sum())
