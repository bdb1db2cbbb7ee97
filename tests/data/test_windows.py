import pytest
import torch

from data.shuffled import ShuffledWindows
from data.windows import Windows


@pytest.mark.parametrize("kind", [Windows, ShuffledWindows])
def test_a_window_is_the_text_at_its_offsets(kind: type[Windows]):
    ids = torch.randint(50, (1_000,), generator=torch.Generator().manual_seed(0))
    tokens, offsets, _ = kind(ids, seed=1).draw(64, 32)
    assert tokens.shape == offsets.shape == (64, 32)
    assert torch.equal(tokens, ids[offsets])
    assert torch.equal(offsets, offsets[:, :1] + torch.arange(32))


def test_random_windows_reach_both_ends_of_the_text():
    _, offsets, _ = Windows(torch.arange(40), seed=0).draw(2_000, 32)
    assert offsets[:, 0].unique().tolist() == list(range(9))
    tokens, _, _ = Windows(torch.arange(32), seed=0).draw(4, 32)  # the only window
    assert torch.equal(tokens, torch.arange(32).expand(4, 32))


def test_an_epoch_of_shuffled_windows_visits_every_cell_once_and_stays_inside_the_text():
    windows = ShuffledWindows(torch.arange(32 * 50 + 7), seed=0)
    starts = torch.cat([windows.draw(10, 32)[1][:, 0] for _ in range(5)])
    assert (starts // 32).sort().values.tolist() == list(range(50))
    assert (starts % 32).unique().numel() > 10  # each at a random offset in its cell
    windows = ShuffledWindows(torch.arange(32 * 3), seed=0)
    assert max(windows.draw(2, 32)[1].max() for _ in range(100)) < 32 * 3


@pytest.mark.parametrize("kind", [Windows, ShuffledWindows])
def test_the_same_seed_or_state_gives_the_same_windows(kind: type[Windows]):
    ids = torch.arange(10_000)
    first, second = (kind(ids, seed=3) for _ in range(2))
    assert torch.equal(first.draw(8, 64)[1], second.draw(8, 64)[1])
    state = first.state_dict()
    expected = [first.draw(8, 64)[1] for _ in range(50)]
    third = kind(ids, seed=99)
    third.load_state_dict(state)
    assert all(torch.equal(third.draw(8, 64)[1], offsets) for offsets in expected)
