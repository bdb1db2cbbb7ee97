import pytest
import torch

from benchmarks import peers
from benchmarks.peers import Shape, collated
from benchmarks.throughput import configured, folio

SHAPE = Shape(d_model=32, n_layers=2, n_heads=4, d_ff=48, seq_len=16, batch_size=8)
N_TOKENS = 30
IDS = torch.randint(N_TOKENS - 2, (2_000,), generator=torch.Generator().manual_seed(0))


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
