import torch

from data.generators import restore_generator


def draws_after_restoring(state: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int(torch.randint(1_000, ())))
    restore_generator(generator, state)
    return torch.rand(5, generator=generator)


def test_a_restored_generator_continues_its_draws():
    """And a state of another device gives the same new draws each time."""
    saved = torch.Generator().manual_seed(3)
    torch.rand(5, generator=saved)
    assert torch.equal(draws_after_restoring(saved.get_state()), torch.rand(5, generator=saved))
    state = torch.arange(16, dtype=torch.uint8)  # a GPU's state: a seed and an offset
    assert torch.equal(draws_after_restoring(state), draws_after_restoring(state))
    assert not torch.equal(draws_after_restoring(state), draws_after_restoring(state.flip(0)))
