"""Masked language modelling: which characters to hide, and what to put in their place.

Devlin et al. 2018 (BERT): 15% of the tokens are selected; of these 80% become `[MASK]`, 10% a random
token, 10% stay as they are. The model has to predict the original of every selected token.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from data.generators import restore_generator
from data.masking.adaptive import AdaptiveUnits
from data.masking.mixture import Mixture
from data.masking.segmenters import Characters, Segmenter, first_columns, sampling_order
from data.windows import Pairs

IGNORED_LABEL = -100  # what PyTorch's cross-entropy ignores; id 0 is a real character and never means that


class MaskedBatch(NamedTuple):
    """What a masked language model is trained on."""

    inputs: torch.Tensor  # [batch, seq_len] token ids, selected positions corrupted
    positions: torch.Tensor  # [n_masked] selected offsets in inputs.flatten()
    labels: torch.Tensor  # [n_masked] the original ids there; IGNORED_LABEL fills what could not be selected
    offsets: torch.Tensor  # [n_masked] where in the training text they stand
    pairs: Pairs | None = None  # what the windows are beside, where they are pairs of text


class Corruption:
    """Replaces selected tokens: `[MASK]`, a random token, or the token itself.

    One uniform draw u a token decides, so the shares are exact in expectation:
    u < randomize_prob is a random token, the next no_change_prob stay, the rest become `[MASK]`.
    """

    def __init__(
        self,
        *,
        mask_token: int,
        random_token_weights: torch.Tensor,
        randomize_prob: float = 0.1,
        no_change_prob: float = 0.1,
    ):
        """`random_token_weights` `[n_tokens]`: how often each id is a random replacement; 0 is never."""
        if min(randomize_prob, no_change_prob) < 0 or randomize_prob + no_change_prob > 1:
            raise ValueError("randomize_prob and no_change_prob must be at least 0 and at most 1 together")
        self.mask_token = mask_token
        self.randomize_prob = randomize_prob
        self.no_change_prob = no_change_prob
        # Inverse transform sampling over the ids that may be drawn: random_ids[i] where cumulative[i] > draw.
        self.random_ids = torch.nonzero(random_token_weights.cpu()).flatten()
        weights = random_token_weights.cpu()[self.random_ids].to(torch.float64)
        self.cumulative = (weights.cumsum(0) / weights.sum()).to(torch.float32)

    def to(self, device: torch.device) -> "Corruption":
        """Move to `device`, and return itself."""
        self.random_ids = self.random_ids.to(device)
        self.cumulative = self.cumulative.to(device)
        return self

    def __call__(self, tokens: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Corrupt `tokens`; `draws` `[2, *tokens.shape]` are uniform in [0, 1): the branch and the random id."""
        branch, which = draws
        # The draws are below 1, the last of `cumulative` is 1: every draw finds its id.
        random_tokens = self.random_ids[torch.searchsorted(self.cumulative, which.contiguous(), right=True)]
        corrupted = torch.where(branch < self.randomize_prob, random_tokens, self.mask_token)
        unchanged = (branch >= self.randomize_prob) & (branch < self.randomize_prob + self.no_change_prob)
        return torch.where(unchanged, tokens, corrupted)


class MLM:
    """The masking procedure with the interface of the annotated labml implementation.

    Every position is selected independently with `masking_prob`. Unlike the original, the 80/10/10 shares do
    not overlap, random tokens are never special ones, and the argument is not changed.
    """

    def __init__(
        self,
        *,
        padding_token: int,
        mask_token: int,
        no_mask_tokens: Sequence[int],
        n_tokens: int,
        masking_prob: float = 0.15,
        randomize_prob: float = 0.1,
        no_change_prob: float = 0.1,
        generator: torch.Generator | None = None,
    ):
        """`no_mask_tokens` are never selected, and never drawn as random tokens."""
        self.padding_token = padding_token
        self.special_tokens = sorted({*no_mask_tokens, padding_token, mask_token})
        self.masking_prob = masking_prob
        self.generator = generator
        weights = torch.ones(n_tokens)
        weights[self.special_tokens] = 0
        self.corruption = Corruption(
            mask_token=mask_token,
            random_token_weights=weights,
            randomize_prob=randomize_prob,
            no_change_prob=no_change_prob,
        )

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels for token ids `x` of any shape; labels are `padding_token` where not selected."""
        special = torch.tensor(self.special_tokens, device=x.device)
        # All on the device of the generator, if there is one: a CPU generator cannot fill a CUDA tensor.
        device = self.generator.device if self.generator else x.device
        draws = torch.rand((3, *x.shape), generator=self.generator, device=device).to(x.device)
        selected = (draws[0] < self.masking_prob) & ~torch.isin(x, special)
        inputs = torch.where(selected, self.corruption.to(x.device)(x, draws[1:]), x)
        labels = torch.where(selected, x, self.padding_token)
        return inputs, labels


class Masker:
    """Masks training windows: exactly `round(masking_prob * seq_len)` positions in every window.

    `cut` says what is hidden together and how often (see `data.masking.segmenters`): units are drawn in proportion to their weights
    until the budget is spent, and of the last one only the first characters are taken. A window with too few
    characters that may be masked has all of them masked, and IGNORED_LABEL in the offsets left over: shapes never
    depend on the data.

    With `static=True` the draws are made once a character of the text: a window always gets the same masks (BERT's
    original data), instead of new ones each time (RoBERTa, Liu et al. 2019). With `corrupt_units=True` a unit is
    corrupted as one (SpanBERT): all of it `[MASK]`, or random, or unchanged.
    """

    def __init__(
        self,
        corruption: Corruption,
        *,
        seed: int,
        device: torch.device,
        cut: Segmenter | None = None,
        no_mask_tokens: Sequence[int] = (),
        static: bool = False,
        corpus_len: int = 0,
        corrupt_units: bool = False,
    ):
        """`corpus_len`: how many characters the training text has; only static masks need it."""
        self.corruption = corruption.to(device)
        self.cut = Characters() if cut is None else cut
        cuts = self.cut.cuts.values() if isinstance(self.cut, Mixture) else [self.cut]
        self.learners = [cut for cut in cuts if isinstance(cut, AdaptiveUnits)]
        self.no_mask_tokens = torch.tensor(no_mask_tokens, dtype=torch.int64, device=device)
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.static_draws = self._uniform(3, corpus_len) if static else None
        self.corrupt_units = corrupt_units

    def __call__(
        self, tokens: torch.Tensor, offsets: torch.Tensor, masking_prob: float, progress: float = 0.0
    ) -> MaskedBatch:
        """Mask windows of `tokens` `[batch, seq_len]`, which stand at `offsets` of the text (same shape).

        `progress` is the share of the training budget that is spent; mixtures may change with it.
        """
        batch, seq_len = tokens.shape
        n_masked = n_masked_in(seq_len, masking_prob)
        if isinstance(self.cut, Mixture):
            self.cut.progress = progress
        units, weights = self.cut(offsets, self.generator)
        draws = self._uniform(3, batch, seq_len) if self.static_draws is None else self.static_draws[:, offsets]
        may_be = ~torch.isin(tokens, self.no_mask_tokens) if len(self.no_mask_tokens) else None
        order, times = sampling_order(units, weights, draws[0], may_be)
        columns, eligible = order[:, :n_masked], times[:, :n_masked].isfinite().flatten()
        positions = (columns + torch.arange(0, batch * seq_len, seq_len, device=tokens.device)[:, None]).flatten()

        branch, which = draws[1], draws[2]
        if self.corrupt_units:
            branch = branch.gather(1, first_columns(units))
        flat = tokens.flatten()
        originals = flat[positions]
        corrupted = self.corruption(originals, torch.stack([branch, which]).flatten(1)[:, positions])
        inputs = flat.index_put((positions,), torch.where(eligible, corrupted, originals))
        labels = torch.where(eligible, originals, IGNORED_LABEL)
        return MaskedBatch(inputs.view(batch, seq_len), positions, labels, offsets.flatten()[positions])

    def observe(self, batch: MaskedBatch, losses: torch.Tensor) -> None:
        """Tell the strategy how the model did, `losses` `[n_masked]` in nats: the one call back up the stream."""
        for learner in self.learners:
            learner.observe(batch.offsets, losses)

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator, device=self.generator.device)

    def state_dict(self) -> dict[str, Any]:
        """All that decides the masks still to come."""
        learnt = [learner.state_dict() for learner in self.learners]
        return {"generator": self.generator.get_state(), "learnt": learnt}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore_generator(self.generator, state["generator"])
        for learner, learnt in zip(self.learners, state["learnt"], strict=True):
            learner.load_state_dict(learnt)


class IndependentMasker:
    """Masks training windows with a callable of the annotated interface, such as `MLM` or labml_nn's own.

    How many positions are selected varies from batch to batch, so this masker is not for a compiled step.
    """

    def __init__(self, mlm: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], padding_token: int):
        self.mlm = mlm
        self.padding_token = padding_token

    def __call__(
        self, tokens: torch.Tensor, offsets: torch.Tensor, masking_prob: float, progress: float = 0.0
    ) -> MaskedBatch:
        """The masking rate is the one `mlm` was made with; a different one is refused with ValueError."""
        if masking_prob != self.mlm.masking_prob:  # type: ignore[attr-defined]
            raise ValueError("masking_prob cannot change from stage to stage with masking.strategy=labml_nn")
        inputs, labels = self.mlm(tokens.clone())
        positions = torch.nonzero(labels.flatten() != self.padding_token).flatten()
        return MaskedBatch(inputs, positions, labels.flatten()[positions], offsets.flatten()[positions])

    def observe(self, batch: MaskedBatch, losses: torch.Tensor) -> None:
        """Learns nothing."""

    def state_dict(self) -> dict[str, Any]:
        """labml_nn's MLM draws from PyTorch's global generators."""
        return {"generator": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["generator"].cpu())


def n_masked_in(seq_len: int, masking_prob: float) -> int:
    """How many positions of a window are masked; at least one, or there would be nothing to learn."""
    return max(1, round(masking_prob * seq_len))
