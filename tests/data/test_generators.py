import torch

from data.generators import restore_generator


def draws_after_restoring(state: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int(torch.randint(1_000, ())))
    restore_generator(generator, state)
    return torch.rand(5, generator=generator)


def test_a_restored_generator_continues_its_draws():
    saved = torch.Generator().manual_seed(3)
    torch.rand(5, generator=saved)
    assert torch.equal(draws_after_restoring(saved.get_state()), torch.rand(5, generator=saved))


def test_a_state_of_another_device_gives_the_same_new_draws_each_time():
    state = torch.arange(16, dtype=torch.uint8)  # a GPU's state: a seed and an offset
    assert torch.equal(draws_after_restoring(state), draws_after_restoring(state))
    assert not torch.equal(draws_after_restoring(state), draws_after_restoring(state.flip(0)))
