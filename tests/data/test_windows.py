import pytest
import torch

from data.generators import restore_generator
from data.windows import Windows
from data.windows.prefetch import Prefetched
from data.windows.ranges import FolderWindows
from data.windows.shuffled import ShuffledWindows
from tests.data.masking.helpers import generator

IDS = torch.randint(200, (5_000,), generator=generator())
SHAPES = [(4, 32), (4, 32), (2, 64), (4, 32), (4, 32)] * 4
KINDS = [Windows, ShuffledWindows]
THREADS = {
    "in memory": lambda windows: windows,
    "on the disk": lambda windows: Prefetched(windows, IDS.device, in_thread=False),
    "ahead": lambda windows: Prefetched(windows, IDS.device, in_thread=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_is_the_text_at_its_offsets(kind):
    tokens, offsets, *_ = kind(IDS, seed=1).draw(64, 32)
    assert tokens.shape == offsets.shape == (64, 32)
    assert tokens.equal(IDS[offsets])
    assert offsets.equal(offsets[:, :1] + torch.arange(32))


def test_random_windows_reach_both_ends_of_the_text():
    _, offsets, *_ = Windows(torch.arange(40), seed=0).draw(2_000, 32)
    assert offsets[:, 0].unique().tolist() == list(range(9))

    tokens, *_ = Windows(torch.arange(32), seed=0).draw(4, 32)  # the only window

    assert tokens.equal(torch.arange(32).expand(4, 32))


def test_an_epoch_of_shuffled_windows_visits_every_cell_once_and_stays_inside_the_text():
    windows = ShuffledWindows(torch.arange(32 * 50 + 7), seed=0)
    batches = [windows.draw(10, 32) for _ in range(5)]
    starts = torch.cat([batch.offsets[:, 0] for batch in batches])

    assert (starts // 32).sort().values.tolist() == list(range(50))
    assert (starts % 32).unique().numel() > 10  # each at a random offset in its cell

    windows = ShuffledWindows(torch.arange(32 * 3), seed=0)

    for _ in range(100):
        assert windows.draw(2, 32).offsets.max() < 32 * 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrap", THREADS.values(), ids=THREADS)
def test_the_same_seed_or_state_gives_the_same_windows(kind, wrap):
    plain = kind(IDS, seed=1)
    drawn = wrap(kind(IDS, seed=1))
    for shape in SHAPES:
        again = wrap(kind(IDS, seed=99))
        again.draw(1, 8)
        again.load_state_dict(drawn.state_dict())

        expected = plain.draw(*shape)

        for batch in (drawn.draw(*shape), again.draw(*shape)):
            assert batch.tokens.equal(expected.tokens)
            assert batch.offsets.equal(expected.offsets)


def test_windows_stay_inside_folders_and_reach_every_start():
    folders = torch.tensor([3, 20, 20, 28, 60])
    windows = FolderWindows(torch.arange(60), folders, None, seed=0)
    starts = windows.draw(20_000, 8).offsets[:, 0]
    expected = [*range(3, 13), 20, *range(28, 53)]
    drawn, counts = starts.unique(return_counts=True)

    assert drawn.tolist() == expected

    mean = len(starts) / len(expected)

    assert ((counts - mean).abs() < 5 * mean**0.5).all()  # equally often


def draws_after_restoring(state):
    some = generator(int(torch.randint(1_000, ())))
    restore_generator(some, state)
    return torch.rand(5, generator=some)


def test_a_restored_generator_continues_its_draws():
    """And a state of another device gives the same new draws each time."""
    saved = generator(3)
    torch.rand(5, generator=saved)
    continued = draws_after_restoring(saved.get_state())

    assert torch.equal(continued, torch.rand(5, generator=saved))

    state = torch.arange(16, dtype=torch.uint8)  # a GPU's state: a seed and an offset
    draws = draws_after_restoring(state)

    assert torch.equal(draws, draws_after_restoring(state))
    assert not torch.equal(draws, draws_after_restoring(state.flip(0)))
