import torch
from torch.nn import functional as F

from benchmarks.peak import flops_of


def test_the_operations_of_products_and_of_attention_are_counted():
    """Per character: 2 per weight, and 2 * seq_len * d_model for scores and for mixing; twice that going backward."""
    weight, x = torch.randn(32, 32, requires_grad=True), torch.randn(5, 4, 20, 8, requires_grad=True)

    def step():
        mixed = F.scaled_dot_product_attention(x, x, x).transpose(1, 2).reshape(5, 20, 32)
        return (mixed @ weight).sum().backward()

    assert flops_of(step) / (5 * 20) == 3 * (2 * 32 * 32 + 4 * 20 * 32)
