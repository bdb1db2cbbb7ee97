"""Which characters are hidden from the model, and what replaces them."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from labml.configs import option

from configs.branch import Branch, derived_seed
from configs.keys import ConfigError, Key

if TYPE_CHECKING:
    import torch

    from data.masking import Masker
    from data.masking.segmenters import Segmenter, Strategy


# of `data.masking.strategies`, which imports PyTorch
STRATEGY_NAMES = (
    "random",
    "whole_word",
    "span",
    "span_characters",
    "entity",
    "frequency",
    "contextual",
    "pmi",
    "semantic",
    "syntax",
    "adaptive",
)


class MaskingConfigs(Branch):
    """Keys `masking.*`. Reading `strategy` gives the masker with that strategy."""

    strategy: Annotated[
        Any, Key("how characters are selected for masking", reference=True)
    ] = "random"
    masking_prob: Annotated[
        float, Key("share of the characters that are selected", above=0, high=1)
    ] = 0.15
    randomize_prob: Annotated[
        float,
        Key("share of the selected that a random character replaces", low=0, high=1),
    ] = 0.1
    no_change_prob: Annotated[
        float, Key("share of the selected that stay unchanged", low=0, high=1)
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


@option(MaskingConfigs.no_mask_ids)
def no_mask_ids(c: MaskingConfigs) -> list[int]:
    """The ids that are never selected: special tokens in the text, and the characters of
    `no_mask_tokens`."""
    from data.vocabulary import MASK, PAD

    vocabulary = c.root().data.vocabulary
    unknown = set(c.no_mask_tokens) - set(vocabulary.ordinary)
    if unknown:
        raise ConfigError(
            f"masking.no_mask_tokens: {sorted(unknown)[0]!r} is not in the vocabulary"
        )
    special = [token for token in vocabulary.special_tokens if token not in (PAD, MASK)]
    return [vocabulary.id_of(token) for token in (*special, *c.no_mask_tokens)]


@option(MaskingConfigs.random_token_weights)
def random_token_weights(c: MaskingConfigs) -> "torch.Tensor":
    """`[n_tokens]`, 0 for special tokens, those that are never selected, and those that the text
    does not have."""
    import torch

    data = c.root().data
    n_ordinary = data.vocabulary.n_ordinary
    training, validation = (counts[:n_ordinary] for counts in data.counts)
    weights = torch.zeros(data.vocabulary.n_tokens)
    weights[:n_ordinary] = (
        training.float()
        if c.random_tokens == "unigram"
        else (training + validation > 0).float()
    )
    weights[c.no_mask_ids] = 0.0
    if not weights.any():
        raise ConfigError("masking.no_mask_tokens leaves no character to mask")
    return weights


def build_masker(c: MaskingConfigs, strategy: "Strategy") -> "Masker":
    """The masker that the keys ask for, with the segmenter that `strategy` makes for the training
    text."""
    from data.masking import Corruption, Masker

    root = c.root()
    segmenter = segmenter_of(c, strategy)
    if c.masks == "static" and not segmenter.allows_static_masks:
        raise ConfigError(
            "masking.masks=static: this masking.strategy draws units or weights anew; use dynamic"
        )
    corruption = Corruption(
        mask_token=root.data.vocabulary.mask_token,
        random_token_weights=c.random_token_weights,
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return Masker(
        corruption,
        segmenter=segmenter,
        seed=derived_seed(root.seed, "masks"),
        device=root.torch_device,
        no_mask_tokens=c.no_mask_ids,
        static_text_len=len(root.data.training_ids) if c.masks == "static" else 0,
        corrupt_units=c.corrupt == "unit",
    )


def segmenter_of(c: MaskingConfigs, strategy: "Strategy") -> "Segmenter":
    """The segmenter of a strategy for the tokens of the training text."""
    data = c.root().data
    stays_on_disk = data.loaded.is_sample or data.loaded.has_documents
    if data.vocabulary.is_characters and not stays_on_disk:
        return strategy(data.loaded.training)
    from data.masking.token_units import for_tokens

    documents = data.stored_tokens.documents if stays_on_disk else None
    return for_tokens(
        strategy, data.loaded, data.training_ids, data.vocabulary, documents
    )


def _register(name: str) -> None:
    def masker(c: MaskingConfigs) -> "Masker":
        from data.masking.strategies import STRATEGIES

        return build_masker(c, STRATEGIES[name])

    option(MaskingConfigs.strategy, name)(masker)


for _name in STRATEGY_NAMES:
    _register(_name)
