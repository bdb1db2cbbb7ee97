import pytest
import torch

from data.generators import go_on_from


@pytest.mark.parametrize("elsewhere", [False, True], ids=["a CPU's state", "a GPU's state"])
def test_a_generator_goes_on_where_it_was_and_where_it_cannot_the_same_way_each_time(elsewhere: bool):
    """A GPU's states are 16 bytes, a seed and an offset; a CPU's are some thousand."""
    saved = torch.Generator().manual_seed(3)
    torch.rand(5, generator=saved)
    state = torch.arange(16, dtype=torch.uint8) if elsewhere else saved.get_state()
    draws = []
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        go_on_from(generator, state)
        draws.append(torch.rand(5, generator=generator))
    assert torch.equal(*draws)
    assert torch.equal(draws[0], torch.rand(5, generator=saved)) is not elsewhere
    if elsewhere:
        other = torch.Generator()
        go_on_from(other, state.flip(0))
        assert not torch.equal(torch.rand(5, generator=other), draws[0])
