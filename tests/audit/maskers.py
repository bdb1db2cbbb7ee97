"""Maskers for the tests of audits: a correct one and variants of it, each as small as possible."""

import torch

N_ORDINARY, PAD, MASK, CLS, SEP, N_TOKENS = 65, 65, 66, 67, 68, 69

Pair = tuple[torch.Tensor, torch.Tensor]


class Masker:
    """BERT's recipe on ids `[batch, seq_len]`."""

    n_tokens, mask_token, padding_token, no_mask_tokens = N_TOKENS, MASK, PAD, [CLS, SEP]

    def __init__(self, rate: float = 0.15, shares: tuple[float, float] = (0.8, 0.1)):
        self.rate = rate
        self.shares = shares

    def select(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.rand(x.shape) < self.rate) & (x < N_ORDINARY)

    def __call__(self, x: torch.Tensor) -> Pair:
        selected, draw = self.select(x), torch.rand(x.shape)
        masked, random = self.shares
        replaced = torch.where(draw < masked, MASK, torch.randint(N_ORDINARY, x.shape))
        replaced = torch.where(draw < masked + random, replaced, x)
        return torch.where(selected, replaced, x), torch.where(selected, x, -100)


class Spans(Masker):
    """Spans of three tokens at random places."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        begins = torch.rand(x.shape) < self.rate / 3
        spans = begins | begins.roll(1, 1) | begins.roll(2, 1)
        return spans & (x < N_ORDINARY)


class RatePerWindow(Masker):
    """A rate per window, as in masked diffusion."""

    def select(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.rand(x.shape) < torch.rand(len(x), 1)) & (x < N_ORDINARY)


class OwnGenerator(Masker):
    """Draws from a generator of its own, which DataLoader workers copy."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(7)

    def select(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.rand(x.shape, generator=self.generator) < self.rate) & (x < N_ORDINARY)
