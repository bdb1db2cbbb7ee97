import pytest
import torch

from data.documents import DocumentWindows
from data.prefetch import Prefetched
from data.shuffled import ShuffledWindows
from data.windows import WindowBatch, Windows

IDS = torch.randint(200, (5_000,), generator=torch.Generator().manual_seed(0))
SHAPES = [(4, 32), (4, 32), (2, 64), (4, 32), (4, 32)]


def prefetched(kind: type[Windows]) -> Prefetched:
    return Prefetched(kind(IDS, seed=1), torch.device("cpu"))


def equal(a: WindowBatch, b: WindowBatch) -> bool:
    return torch.equal(a.tokens, b.tokens) and torch.equal(a.offsets, b.offsets)


@pytest.mark.parametrize("kind", [Windows, ShuffledWindows])
def test_windows_are_the_same_as_without_a_thread_and_the_state_continues_with_the_next(kind: type[Windows]):
    plain, ahead = kind(IDS, seed=1), prefetched(kind)
    for shape in SHAPES:
        again = prefetched(kind)
        again.draw(1, 8)
        again.load_state_dict(ahead.state_dict())
        expected = plain.draw(*shape)
        assert equal(ahead.draw(*shape), expected)
        assert equal(again.draw(*shape), expected)


def test_windows_stay_inside_documents_and_reach_every_start():
    documents = torch.tensor([3, 20, 20, 28, 60])
    windows = DocumentWindows(torch.arange(60), documents, seed=0)
    starts = windows.draw(20_000, 8).offsets[:, 0]
    expected = [*range(3, 13), 20, *range(28, 53)]
    found, counts = starts.unique(return_counts=True)
    assert found.tolist() == expected
    mean = len(starts) / len(expected)
    assert ((counts - mean).abs() < 5 * mean**0.5).all()  # equally often
