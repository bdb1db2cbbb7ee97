"""What is hidden from the model, and what stands in its place."""

from typing import Annotated, Any

import torch
from labml.configs import BaseConfigs, option

from configs.keys import ConfigError, Key
from configs.seeds import derived_seed
from data.masking import Corruption, IndependentMasker, Masker
from data.masking.mixture import Mixture
from data.masking.segmenters import Segmenter
from data.masking.strategies import STRATEGIES, on_device
from data.vocabulary import MASK, PAD, Vocabulary


class MaskingConfigs(BaseConfigs):
    """Keys `masking.*`. `strategy` becomes the masker that its name stands for."""

    strategy: Annotated[Any, Key("how characters are selected for masking")] = "random"
    masking_prob: Annotated[float, Key("share of the characters that are selected", above=0, high=1)] = 0.15
    randomize_prob: Annotated[float, Key("share of the selected that a random character replaces", low=0, high=1)] = 0.1
    no_change_prob: Annotated[float, Key("share of the selected that stay unchanged", low=0, high=1)] = 0.1
    random_tokens: Annotated[
        str,
        Key("random characters; unigram: as frequent as in the training text", choices=("uniform", "unigram")),
    ] = "uniform"
    masks: Annotated[
        str,
        Key("dynamic: new masks each time (RoBERTa); static: drawn once (BERT)", choices=("dynamic", "static")),
    ] = "dynamic"
    corrupt: Annotated[
        str,
        Key("corrupt each character on its own, or each unit as a whole (SpanBERT)", choices=("character", "unit")),
    ] = "character"
    mixture: Annotated[
        list,
        Key("for strategy=mixture: rows {until: share of the budget, STRATEGY: relative share of the windows, ...}"),
    ] = []
    no_mask_tokens: Annotated[str, Key("characters that are never selected, without separators")] = ""

    # From the experiment: see configs/experiment.py.
    device: torch.device
    seed: int
    vocabulary: Vocabulary
    training_ids: torch.Tensor
    training_text: str


def _no_mask_ids(c: MaskingConfigs) -> list[int]:
    """What is never selected: special tokens in the text, and the characters of `no_mask_tokens`."""
    unknown = set(c.no_mask_tokens) - set(c.vocabulary.characters)
    if unknown:
        raise ConfigError(f"masking.no_mask_tokens: {sorted(unknown)[0]!r} is not in the corpus")
    special = [token for token in c.vocabulary.special_tokens if token not in (PAD, MASK)]
    return [c.vocabulary.id_of(token) for token in (*special, *c.no_mask_tokens)]


def _random_token_weights(c: MaskingConfigs) -> torch.Tensor:
    """`[n_tokens]`: special tokens, and those that are never selected, are never drawn."""
    weights = torch.zeros(c.vocabulary.n_tokens)
    counts = torch.bincount(c.training_ids.cpu(), minlength=c.vocabulary.n_chars).float()
    weights[: c.vocabulary.n_chars] = counts if c.random_tokens == "unigram" else 1.0
    weights[_no_mask_ids(c)] = 0.0
    if not weights.any():
        raise ConfigError("masking.no_mask_tokens leaves no character to mask")
    return weights


def _masker(c: MaskingConfigs, cut: Segmenter) -> Masker:
    corruption = Corruption(
        mask_token=c.vocabulary.mask_token,
        random_token_weights=_random_token_weights(c),
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return Masker(
        corruption,
        seed=derived_seed(c.seed, "masks"),
        device=c.device,
        cut=on_device(cut, c.device),
        no_mask_tokens=_no_mask_ids(c),
        static=c.masks == "static",
        corpus_len=len(c.training_ids),
        corrupt_units=c.corrupt == "unit",
    )


def _register(name: str) -> None:
    def masker(c: MaskingConfigs) -> Masker:
        return _masker(c, STRATEGIES[name](c.training_text))

    option(MaskingConfigs.strategy, name)(masker)


for _name in STRATEGIES:  # every function of data/strategies.py with @strategy above it
    _register(_name)


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> Masker:
    """Each window is masked by one of several strategies, as `masking.mixture` says."""
    rows = [(row["until"], {name: share for name, share in row.items() if name != "until"}) for row in c.mixture]
    names = dict.fromkeys(name for _, shares in rows for name in shares)
    return _masker(c, Mixture({name: on_device(STRATEGIES[name](c.training_text), c.device) for name in names}, rows))


@option(MaskingConfigs.strategy)
def labml_nn(c: MaskingConfigs) -> IndependentMasker:
    """labml_nn's own MLM: each position selected independently, shares of 81/10/9."""
    from labml_nn.transformers.mlm import MLM

    mlm = MLM(
        padding_token=c.vocabulary.padding_token,
        mask_token=c.vocabulary.mask_token,
        no_mask_tokens=_no_mask_ids(c),
        n_tokens=c.vocabulary.n_tokens,
        masking_prob=c.masking_prob,
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return IndependentMasker(mlm, c.vocabulary.padding_token)
