"""Mixtures of masking strategies."""

from typing import TYPE_CHECKING

from labml.configs import option

from configs.masking import MaskingConfigs, build_masker

if TYPE_CHECKING:
    from data.masking import Masker


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> "Masker":
    """Each window is masked by one of several strategies, according to `masking.mixture`."""
    from data.masking.strategies import STRATEGIES
    from data.masking.units import Mixture

    rows = [
        (row["until"], {name: share for name, share in row.items() if name != "until"})
        for row in c.mixture
    ]
    names = dict.fromkeys(name for _, shares in rows for name in shares)
    return build_masker(
        c, lambda text: Mixture({name: STRATEGIES[name](text) for name in names}, rows)
    )
