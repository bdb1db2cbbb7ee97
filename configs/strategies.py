"""The options of `masking.strategy` that mask units of several characters, and mixtures of them."""

from typing import TYPE_CHECKING

from labml.configs import option

from configs.masking import MaskingConfigs

if TYPE_CHECKING:
    from data.masking import Masker

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


def _register(name: str) -> None:
    def masker(c: MaskingConfigs) -> "Masker":
        from configs.segment_masker import build_masker
        from data.masking.strategies import STRATEGIES

        return build_masker(c, STRATEGIES[name])

    option(MaskingConfigs.strategy, name)(masker)


# `configs.masking` registers `random`
for _name in STRATEGY_NAMES[1:]:
    _register(_name)


@option(MaskingConfigs.strategy)
def mixture(c: MaskingConfigs) -> "Masker":
    """Each window is masked by one of several strategies, according to `masking.mixture`."""
    from configs.own_code import own_strategy
    from configs.references import load
    from configs.segment_masker import build_masker
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
