"""The second objective, on pairs of text."""

from typing import Annotated

from labml.configs import option

from configs.branch import Branch
from configs.keys import Key


class ObjectiveConfigs(Branch):
    """Keys `objective.*`: a second objective beside the masked characters."""

    nsp: Annotated[bool, Key("next-sentence prediction (BERT): does speech B follow speech A?")] = (
        False
    )
    sop: Annotated[
        bool, Key("sentence-order prediction (ALBERT): are two neighboring pieces in order?")
    ] = False

    pairs: str


@option(ObjectiveConfigs.pairs)
def objective_on_pairs(c: ObjectiveConfigs) -> str:
    """The objective on pairs of text, nsp or sop; empty if there is none."""
    return "nsp" if c.nsp else "sop" if c.sop else ""
