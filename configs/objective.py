"""The second objective, on pairs of text."""

from typing import TYPE_CHECKING, Annotated, Any

from labml.configs import option

from configs.branch import Branch
from configs.keys import Key

if TYPE_CHECKING:
    from training.objective import Loss


class ObjectiveConfigs(Branch):
    """Keys `objective.*`: a second objective beside the masked characters."""

    nsp: Annotated[bool, Key("next-sentence prediction (BERT): does speech B follow speech A?")] = (
        False
    )
    sop: Annotated[
        bool, Key("sentence-order prediction (ALBERT): are two neighboring pieces in order?")
    ] = False

    loss: Annotated[
        Any, Key("the loss at each masked position; loss.valid stays cross-entropy", reference=True)
    ] = "cross_entropy"

    pairs: str


@option(ObjectiveConfigs.loss, "cross_entropy")
def loss(c: ObjectiveConfigs) -> "Loss":
    from training.objective import cross_entropy

    return cross_entropy


@option(ObjectiveConfigs.pairs)
def objective_on_pairs(c: ObjectiveConfigs) -> str:
    """The objective on pairs of text, nsp or sop; empty if there is none."""
    return "nsp" if c.nsp else "sop" if c.sop else ""
