"""Two values of `masking.strategy` that are not functions in data/masking/strategies.py."""

from typing import TYPE_CHECKING

from labml.configs import option

from configs.masking import MaskingConfigs, build_masker

if TYPE_CHECKING:
    from data.masking import IndependentMasker, Masker


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> "Masker":
    """Each window is masked by one of several strategies, according to `masking.mixture`."""
    from data.masking.changing_units import Mixture
    from data.masking.strategies import STRATEGIES

    rows = [(row["until"], {name: share for name, share in row.items() if name != "until"}) for row in c.mixture]
    names = dict.fromkeys(name for _, shares in rows for name in shares)
    return build_masker(c, lambda text: Mixture({name: STRATEGIES[name](text) for name in names}, rows))


@option(MaskingConfigs.strategy)
def labml_nn(c: MaskingConfigs) -> "IndependentMasker":
    """labml_nn's own MLM: each position is selected independently, with shares of 81/10/9."""
    from labml_nn.transformers.mlm import MLM

    from data.masking import IndependentMasker

    vocabulary = c.root().data.vocabulary
    mlm = MLM(
        padding_token=vocabulary.padding_token,
        mask_token=vocabulary.mask_token,
        no_mask_tokens=c.no_mask_ids,
        n_tokens=vocabulary.n_tokens,
        masking_prob=c.masking_prob,
        randomize_prob=c.randomize_prob,
        no_change_prob=c.no_change_prob,
    )
    return IndependentMasker(mlm)
