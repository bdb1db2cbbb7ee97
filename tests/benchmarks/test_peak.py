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
HEAD = 2 * SHAPE.d_model * N_TOKENS


def counted(step) -> float:
    """The operations for each character, as PyTorch counts them in the products that really run."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it does not count fused attention
        step()
    return counter.get_total_flops() / SHAPE.chars_per_step


def test_the_formula_counts_what_folios_model_computes():
    encoder = ModernEncoder(n_tokens=N_TOKENS, d_model=32, n_layers=3, n_heads=4, d_ff=48)
    model = MaskedLanguageModel(encoder)
    inputs, positions = torch.zeros(5, 20, dtype=torch.int64), torch.arange(0, 100, 5)
    expected = flops_per_char(SHAPE, feed_forward_matrices=3, head_flops=0.2 * (2 * SHAPE.d_model**2 + HEAD), last=0.2)
    assert counted(lambda: model(inputs, positions).sum().backward()) == pytest.approx(expected)


def test_the_formula_counts_what_the_annotated_step_computes():
    step = peers.annotated(SHAPE, torch.randint(N_TOKENS - 2, (1_000,)), N_TOKENS)
    expected = flops_per_char(SHAPE, feed_forward_matrices=2, head_flops=HEAD)
    assert counted(step) == pytest.approx(expected)


def test_the_formula_counts_what_hugging_faces_step_computes():
    step = peers.hugging_face(SHAPE, torch.randint(N_TOKENS - 2, (1_000,)), N_TOKENS)
    expected = flops_per_char(SHAPE, feed_forward_matrices=2, head_flops=2 * SHAPE.d_model**2 + HEAD)
    assert counted(step) == pytest.approx(expected)
