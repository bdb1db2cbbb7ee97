"""The formula for the operations of a step, against PyTorch's own count."""

from functools import partial

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import peers
from benchmarks.peak import flops_per_char
from benchmarks.peers import Shape
from model import MaskedLanguageModel, ModernEncoder

SHAPE = Shape(d_model=32, n_layers=3, n_heads=4, d_ff=48, seq_len=20, batch_size=5)
N_TOKENS = 30
IDS = torch.randint(N_TOKENS - 2, (1_000,))


def counted(step) -> float:
    """Operations per character in the products that run."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # fused attention is not counted
        step()
    return counter.get_total_flops() / SHAPE.chars_per_step


def test_folio():
    encoder = ModernEncoder(n_tokens=N_TOKENS, d_model=32, n_layers=3, n_heads=4, d_ff=48)
    model = MaskedLanguageModel(encoder)
    inputs = torch.zeros(5, 20, dtype=torch.int64)
    positions = 20 * torch.arange(5)[:, None] + torch.arange(3)  # 15% of each window
    step = lambda: model(inputs, positions).sum().backward()  # noqa: E731
    assert counted(step) == pytest.approx(flops_per_char(SHAPE, "Folio", N_TOKENS))


PEERS = {
    "annotated": peers.annotated,
    "Hugging Face BERT": partial(peers.hugging_face, "bert"),
    "Hugging Face ModernBERT": partial(peers.hugging_face, "modernbert"),  # its number of masked characters is random
}


@pytest.mark.parametrize("name", PEERS)
def test_peers(name):
    step, tolerance = PEERS[name](SHAPE, IDS, N_TOKENS), 1e-2 if name.endswith("ModernBERT") else 1e-6
    assert counted(step) == pytest.approx(flops_per_char(SHAPE, name, N_TOKENS), rel=tolerance)
