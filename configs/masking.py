"""Which characters are hidden from the model, and what replaces them."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from labml.configs import option

from configs.branch import Branch, derived_seed
from configs.keys import ConfigError, Key, Share

if TYPE_CHECKING:
    import torch

    from data.masking import Corruption, Masker


class MaskingConfigs(Branch):
    """Keys `masking.*`. Reading `strategy` gives the masker with that strategy."""

    strategy: Annotated[
        Any, Key("how characters are selected for masking", reference=True)
    ] = "random"
    masking_prob: Annotated[
        float,
        Key(
            "share of the characters that are selected, in stages without a rate of their own",
            above=0,
            high=1,
        ),
    ] = 0.15
    randomize_prob: Annotated[
        float,
        Share("share of the selected that a random character replaces"),
    ] = 0.1
    no_change_prob: Annotated[
        float, Share("share of the selected that stay unchanged")
    ] = 0.1
    random_tokens: Annotated[
        Literal["uniform", "unigram"], Key("unigram: as frequent as in the text")
    ] = "uniform"
    masks: Annotated[
        Literal["dynamic", "static"], Key("dynamic: new each time; static: drawn once")
    ] = "dynamic"
    corrupt: Annotated[
        Literal["character", "unit"], Key("each character on its own, or whole units")
    ] = "character"
    mixture: Annotated[
        list,
        Key(
            "rows {until: share of the budget, STRATEGY: share of the windows, ...}",
            reference=True,
        ),
    ] = []
    no_mask_tokens: Annotated[
        str, Key("characters that are never selected, without separators")
    ] = ""

    no_mask_ids: list[int]
    random_token_weights: "torch.Tensor"
    corruption: "Corruption"


@option(MaskingConfigs.no_mask_ids)
def no_mask_ids(c: MaskingConfigs) -> list[int]:
    """The ids that are never selected: special tokens, and the characters of `no_mask_tokens`."""
    vocabulary = c.root().data.vocabulary
    unknown = set(c.no_mask_tokens) - set(vocabulary.ordinary)
    if unknown:
        raise ConfigError(
            f"masking.no_mask_tokens: {sorted(unknown)[0]!r} is not in the vocabulary"
        )
    tokens = [*vocabulary.special_tokens, *c.no_mask_tokens]
    return [vocabulary.id_of(token) for token in tokens]


@option(MaskingConfigs.random_token_weights)
def random_token_weights(c: MaskingConfigs) -> "torch.Tensor":
    """`[n_tokens]`, 0 for special tokens, those that are never selected, and those that the text
    does not have."""
    import torch

    data = c.root().data
    n_ordinary = data.vocabulary.n_ordinary
    training, validation = (counts[:n_ordinary] for counts in data.counts)
    weights = torch.zeros(data.vocabulary.n_tokens)
    weights[:n_ordinary] = (training + validation > 0).float()
    if c.random_tokens == "unigram":
        weights[:n_ordinary] = training.float()
    weights[c.no_mask_ids] = 0.0
    if not weights.any():
        raise ConfigError("masking.no_mask_tokens leaves no character to mask")
    return weights


@option(MaskingConfigs.corruption)
def corruption(c: MaskingConfigs) -> "Corruption":
    from data.masking import Corruption

    return Corruption(
        mask_token=c.root().data.vocabulary.mask_token,
        random_token_weights=c.random_token_weights,
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )


@option(MaskingConfigs.strategy)
def random(c: MaskingConfigs) -> "Masker":
    """Single characters, each with the same probability. `configs.strategies` registers the others."""
    from data.masking import Masker

    root = c.root()
    if c.masks == "static" or root.data.is_packed:
        from configs.segment_masker import build_masker
        from data.masking.segmenters import random

        return build_masker(c, random)
    return Masker(
        c.corruption,
        seed=derived_seed(root.seed, "masks"),
        device=root.torch_device,
        no_mask_tokens=c.no_mask_ids,
    )
