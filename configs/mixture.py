"""Masking with several strategies."""

from typing import TYPE_CHECKING

from labml.configs import option

from configs.masking import MaskingConfigs, build_masker

if TYPE_CHECKING:
    from data.masking import Masker


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> "Masker":
    """Each window is masked by one of several strategies, according to `masking.mixture`."""
    from configs.own_code import own_strategy
    from configs.references import load
    from data.masking.strategies import STRATEGIES
    from data.masking.units import Mixture

    rows = [
        (row["until"], {name: share for name, share in row.items() if name != "until"})
        for row in c.mixture
    ]
    strategies = {}
    for _, shares in rows:
        for name in shares:
            strategies[name] = STRATEGIES.get(name) or own_strategy(
                load("masking.mixture", name)
            )

    def mixed(text: str) -> Mixture:
        return Mixture(
            {name: strategy(text) for name, strategy in strategies.items()}, rows
        )

    return build_masker(c, mixed)
