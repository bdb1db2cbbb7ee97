"""The benchmarks' own figures: operations counted by PyTorch, masks of 80/10/10, steps that learn."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import peers
from benchmarks.peak import flops_per_char
from benchmarks.peers import Shape, collated
from benchmarks.throughput import configured, folio
from training.objective import masked_loss
from training.stages import Stage

SHAPE = Shape(d_model=32, n_layers=2, n_heads=4, d_ff=48, seq_len=16, batch_size=8)
N_TOKENS = 30
IDS = torch.randint(N_TOKENS - 2, (2_000,), generator=torch.Generator().manual_seed(0))


def test_the_operations_are_those_that_pytorch_counts(shakespeare):
    configs = configured(SHAPE, **{"training.compile": False, "device": "cpu"})
    batch = configs.step._draw(Stage(1.0, SHAPE.seq_len, 0.25))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # it does not count fused attention
        masked_loss(configs.network, batch).loss_sum.backward()
    d, n_tokens = SHAPE.d_model, configs.data.vocabulary.n_tokens
    expected = flops_per_char(SHAPE, feed_forward_matrices=3, head_flops=0.25 * (2 * d**2 + 2 * d * n_tokens))
    assert counter.get_total_flops() == pytest.approx(SHAPE.chars_per_step * expected, rel=0.02)


def test_hugging_faces_masks_are_80_10_10():
    tokens = torch.zeros(200, 500, dtype=torch.int64)
    inputs, labels = collated(tokens, N_TOKENS, torch.Generator().manual_seed(0))
    selected = labels == 0
    assert (labels[~selected] == -100).all()
    assert selected.double().mean() == pytest.approx(0.15, abs=0.005)
    assert (inputs[selected] == N_TOKENS - 1).double().mean() == pytest.approx(0.8 + 0.1 / N_TOKENS, abs=0.01)
    assert (inputs[selected] == 0).double().mean() == pytest.approx(0.1 + 0.1 / N_TOKENS, abs=0.01)
    assert (inputs[~selected] == 0).all()


@pytest.mark.parametrize("name", ["annotated", "hugging_face", "folio"])
def test_every_step_learns(name, shakespeare):
    torch.manual_seed(0)
    if name == "folio":
        keys = {"training.compile": False, "device": "cpu", "training.warmup": 0.0}
        step = folio(configured(SHAPE, **keys), SHAPE)
    else:
        step = getattr(peers, name)(SHAPE, IDS % 3, N_TOKENS)  # three characters: soon found out
    first = step()
    for _ in range(60):
        last = step()
    assert last < 0.95 * first
