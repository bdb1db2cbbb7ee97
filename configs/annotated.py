"""The parts of the annotated labml experiment, all from labml_nn: its model, its masking and its
optimizer."""

from typing import TYPE_CHECKING, Any

from labml.configs import option

from configs.keys import ConfigError
from configs.masking import MaskingConfigs
from configs.model import ModelConfigs
from configs.training import TrainingConfigs
from distributed.launch import n_started

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from data.masking import IndependentMasker


@option(ModelConfigs.architecture, "labml_nn")
def transformer(c: ModelConfigs) -> "nn.Module":
    """With sinusoids for positions."""
    return labml_transformer(c, "fixed_pos")


@option(ModelConfigs.architecture, "labml_nn_learned_positions")
def with_learned_positions(c: ModelConfigs) -> "nn.Module":
    """With a learned vector per position, which begins at zero."""
    return labml_transformer(c, "learned_pos")


def labml_transformer(c: ModelConfigs, src_embed: str) -> "nn.Module":
    """`src_embed` is the name that labml_nn gives to the kind of positions."""
    from labml_nn.transformers import TransformerConfigs

    from configs.model_contract import check_length
    from model.labml_transformer import LabmlTransformer

    if c.d_model % 2:
        raise ConfigError(
            f"model.d_model={c.d_model} is odd: the positions of labml_nn need pairs"
        )
    parts = TransformerConfigs()
    parts.n_src_vocab = parts.n_tgt_vocab = c.n_tokens
    shared = ("d_model", "n_heads", "n_layers", "dropout")
    values = {key: getattr(c, key) for key in shared}
    for key, value in {**values, "src_embed": src_embed}.items():
        setattr(parts, key, value)
    parts.ffn.d_ff = c.d_ff
    model = LabmlTransformer(
        encoder=parts.encoder, src_embed=parts.src_embed, generator=parts.generator
    )
    check_length(model, c.root())
    return model


@option(MaskingConfigs.strategy, "labml_nn")
def masker(c: MaskingConfigs) -> "IndependentMasker":
    """labml_nn's own MLM: each position is selected independently, with shares of 81/10/9."""
    from labml_nn.transformers.mlm import MLM

    from data.masking import IndependentMasker

    if n_started() > 1:
        raise ConfigError(
            "masking.strategy=labml_nn draws masks that processes cannot share: use random"
        )
    only = {"random_tokens": "uniform", "masks": "dynamic", "corrupt": "character"}
    for key, value in only.items():
        if getattr(c, key) != value:
            raise ConfigError(
                f"masking.{key}={getattr(c, key)}: masking.strategy=labml_nn supports {value} only"
            )
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


@option(TrainingConfigs.optimizer)
def noam(c: TrainingConfigs) -> "list[Optimizer]":
    """Noam with 2,000 warmup steps: lr = learning_rate * d_model^-0.5 * min(step^-0.5, step *
    2000^-1.5) (Vaswani et al. 2017)."""
    from labml_nn.optimizers.noam import Noam

    class ShownNoam(Noam):
        """Keeps the rate that it computes, for `learning_rate_of`."""

        def get_lr(self, state: dict[str, Any], group: dict[str, Any]) -> float:
            group["computed_lr"] = super().get_lr(state, group)
            return group["computed_lr"]

    d_model = c.root().model.d_model
    return [
        ShownNoam(
            c.network.parameters(),
            lr=c.learning_rate,
            eps=1e-8,
            warmup=2_000,
            d_model=d_model,
        )
    ]
