"""The training: budget, stages, optimizer.

A new optimizer is one function with `@option` that returns a list of PyTorch optimizers: see
`adamw`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from labml.configs import option

from configs.branch import Branch
from configs.keys import ConfigError, Key, Share
from distributed.substitutes import in_all_processes
from training.schedule import Stage, masking_rates

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from training.objective import Loss

ADAMW_RATE = "peak learning rate of AdamW at a d_model of 128: it uses this times 128 / d_model; for noam, a factor"
STAGES = "rows {until: share of the budget, seq_len: characters, masking_prob (optional): a rate, or rates in turn}"


class ObjectiveConfigs(Branch):
    """Keys `objective.*`: a second objective beside the masked characters."""

    nsp: Annotated[
        bool, Key("next-sentence prediction (BERT): does speech B follow speech A?")
    ] = False
    sop: Annotated[
        bool,
        Key("sentence-order prediction (ALBERT): are two neighboring pieces in order?"),
    ] = False

    loss: Annotated[
        Any,
        Key(
            "the loss at each masked position; loss.valid stays cross-entropy",
            reference=True,
        ),
    ] = "cross_entropy"

    pairs: str


@option(ObjectiveConfigs.loss, "cross_entropy")
def loss(c: ObjectiveConfigs) -> "Loss":
    from training.objective import cross_entropy

    return cross_entropy


@option(ObjectiveConfigs.pairs)
def objective_on_pairs(c: ObjectiveConfigs) -> str:
    """The objective on pairs of text, nsp or sop; empty if there is none."""
    if c.nsp:
        return "nsp"
    return "sop" if c.sop else ""


class TrainingConfigs(Branch):
    """Keys `training.*`. The run ends at the first of the three budgets that it reaches."""

    max_steps: Annotated[
        int | None,
        Key("stop after this many steps; 0: keep the weights", low=0, resume=True),
    ] = None
    max_chars: Annotated[
        int | None,
        Key("stop after this many characters", low=1, resume=True),
    ] = None
    max_seconds: Annotated[
        float | None,
        Key("stop after this many seconds", above=0, resume=True),
    ] = 180.0
    stages: Annotated[list, Key(STAGES, resume=True)] = [{"until": 1.0, "seq_len": 64}]
    chars_per_step: Annotated[
        int,
        Key("characters per step, over all windows of the batch", low=1, high=2**30),
    ] = 2048
    grad_accum_steps: Annotated[
        int,
        Key(
            "batches per step; more need less memory",
            low=1,
            high=65_536,
            resume=True,
        ),
    ] = 1
    activation_checkpointing: Annotated[
        bool, Key("compute layers again in backward: less memory", resume=True)
    ] = False
    optimizer: Annotated[Any, Key("the optimizer of the weights", reference=True)] = (
        "muon"
    )
    learning_rate: Annotated[float, Key(ADAMW_RATE, above=0)] = 2e-3
    table_learning_rate: Annotated[
        float, Key("peak learning rate of the n-gram table", above=0)
    ] = 0.02
    muon_learning_rate: Annotated[float, Key("peak learning rate of Muon", above=0)] = (
        0.02
    )
    muon_momentum: Annotated[
        float, Key("Muon averages over about 1 / (1 - this) steps", low=0, high=0.999)
    ] = 0.95
    weight_decay: Annotated[float, Key("weight decay of AdamW and Muon", low=0)] = 0.01
    warmup: Annotated[
        float,
        Share("share of the budget with a rising learning rate", resume=True),
    ] = 0.05
    decay: Annotated[
        float,
        Share("final share of the budget, with a falling rate", resume=True),
    ] = 0.4
    final_learning_rate: Annotated[
        float, Share("final rate, as a share of the peak", resume=True)
    ] = 0.01
    grad_norm_clip: Annotated[
        float, Key("largest norm of the gradients", above=0, resume=True)
    ] = 1.0
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], Key("auto: bfloat16 where it is faster")
    ] = "auto"
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        Key("ddp: a model per process; fsdp: sharded", resume=True),
    ] = "ddp"
    threads: Annotated[
        int,
        Key(
            "threads; 0: all, or chosen if only time is limited",
            low=0,
            high=512,
            resume=True,
        ),
    ] = 0
    compile: Annotated[
        bool, Key("compile the step, if a compiler is found", resume=True)
    ] = True
    cuda_graph: Annotated[
        bool,
        Key("on CUDA, record the step, compiled or not, as a CUDA graph", resume=True),
    ] = True
    evaluations: Annotated[
        int,
        Key("number of evaluations, evenly spaced", low=1, high=100_000, resume=True),
    ] = 20

    network: "nn.Module"
    all_stages: list[Stage]
    autocast: bool


@option(TrainingConfigs.network)
def network(c: TrainingConfigs) -> "nn.Module":
    return c.root().network


@option(TrainingConfigs.all_stages)
def all_stages(c: TrainingConfigs) -> list[Stage]:
    """One stage per row and masking rate. Rows without a rate of their own use
    `masking.masking_prob`."""
    rate = c.root().masking.masking_prob
    return [
        Stage(row["until"], row["seq_len"], each)
        for row in c.stages
        for each in masking_rates(row, rate)
    ]


@option(TrainingConfigs.autocast)
def autocast(c: TrainingConfigs) -> bool:
    """Whether to compute in bfloat16. `auto` does on GPUs that have it, and for long vectors on
    CPUs that have it."""
    from model import MaskedLanguageModel
    from training.muon import has_bfloat16

    if c.precision != "auto":
        return c.precision == "bfloat16"
    device = c.root().torch_device
    is_long = c.root().model.d_model >= 128  # 64 gains 5% at most
    gains = is_long and isinstance(c.network, MaskedLanguageModel)
    return has_bfloat16(device) and (gains or device.type == "cuda")


def layers_of(network: "nn.Module", needed_by: str, instead: str) -> "nn.ModuleList":
    """The encoder's layers. Raises ConfigError, which names the key that needs them and another
    choice, if the model has none."""
    layers = getattr(getattr(network, "encoder", None), "layers", None)
    if layers is None:
        raise ConfigError(
            f"{needed_by} needs a model with encoder.layers: use {instead}"
        )
    return layers


@option(TrainingConfigs.optimizer)
def muon(c: TrainingConfigs) -> "list[Optimizer]":
    """Muon for the matrices of the encoder's layers, and `adamw` for all other parameters: Muon's
    updates suit maps between hidden states, which embeddings, norms, biases and the head are not.
    """
    from model.modern import Attention
    from training.muon import Muon

    layers = layers_of(c.network, "training.optimizer=muon", "training.optimizer=adamw")
    matrices = [weight for weight in layers.parameters() if weight.ndim == 2]
    n_parts: dict[Tensor, int] = {}  # of the queries, keys and values: one per head
    for module in layers.modules():
        if isinstance(module, Attention):
            n_parts[module.query_key_value.weight] = 3 * module.n_heads
    by_muon = in_all_processes(Muon)(
        matrices,
        lr=c.muon_learning_rate,
        momentum=c.muon_momentum,
        weight_decay=c.weight_decay,
        n_parts=n_parts,
    )
    by_adamw, *by_row = adamw_of(c, left_out=matrices)
    return [by_adamw, by_muon, *by_row]


@option(TrainingConfigs.optimizer)
def adamw(c: TrainingConfigs) -> "list[Optimizer]":
    return adamw_of(c)


def adamw_of(
    c: TrainingConfigs, left_out: "Sequence[nn.Parameter]" = ()
) -> "list[Optimizer]":
    from training import optimizers

    return optimizers.adamw(
        c.network,
        # the best rate falls so: docs/scaling.md
        learning_rate=c.learning_rate * 128 / c.root().model.d_model,
        table_learning_rate=c.table_learning_rate,
        weight_decay=c.weight_decay,
        left_out=left_out,
    )
