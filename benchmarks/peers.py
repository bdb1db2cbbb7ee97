"""The training steps that Folio's is compared with, as their own authors take them.

Parts around the step are left out in the peers' favor: labml's tracker and DataLoader, Hugging Face's Trainer and
collator. All draw their windows on the device, as Folio does.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from labml_nn.optimizers.noam import Noam
from labml_nn.transformers.mlm import MLM
from torch import nn

from configs.model import ModelConfigs, labml_nn
from data.shuffled import ShuffledWindows
from data.windows import Windows

Step = Callable[[], torch.Tensor]  # updates the weights; returns the loss, still on the device
MASKING_PROB = 0.15
# Names in the config of BERT or of ModernBERT; each ignores the other's.
UNUSED_TOKENS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "embedding_dropout",
    "attention_dropout",
    "mlp_dropout",
)


@dataclass(frozen=True)
class Shape:
    """The model and batch sizes that all peers share."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    seq_len: int
    batch_size: int

    @property
    def chars_per_step(self) -> int:
        return self.batch_size * self.seq_len

    def __str__(self) -> str:
        return f"{self.n_layers} layers of {self.d_model}, {self.batch_size} x {self.seq_len}"


def annotated(shape: Shape, ids: torch.Tensor, n_tokens: int) -> Step:
    """The step of labml_nn/transformers/mlm/experiment.py: sequence first, a full head, Noam, accuracy."""
    transformer = labml_nn(SimpleNamespace(**vars(shape), n_tokens=n_tokens, dropout=0.1)).to(ids.device)
    weights = transformer.parameters()
    optimizer = Noam(weights, lr=1.0, betas=(0.9, 0.999), eps=1e-8, warmup=2_000, d_model=shape.d_model)
    padding, mask = n_tokens - 2, n_tokens - 1
    mlm = MLM(padding_token=padding, mask_token=mask, no_mask_tokens=[], n_tokens=n_tokens, masking_prob=MASKING_PROB)
    loss_function = nn.CrossEntropyLoss(ignore_index=padding)
    windows = ShuffledWindows(ids, seed=0)

    def step() -> torch.Tensor:
        tokens = windows.draw(shape.batch_size, shape.seq_len).tokens.t().contiguous()  # [seq_len, batch]
        with torch.no_grad():
            inputs, labels = mlm(tokens)
        logits = transformer.generator(transformer.encoder(transformer.src_embed(inputs), None))
        loss = loss_function(logits.view(-1, n_tokens), labels.view(-1))
        guesses = logits.view(-1, n_tokens).argmax(-1).masked_fill_(labels.view(-1) == padding, padding)
        _ = guesses.eq(labels.view(-1)).sum().item(), (labels == padding).sum().item()  # its Accuracy reads both
        return update(transformer, optimizer, loss)

    return step


def hugging_face(architecture: str, shape: Shape, ids: torch.Tensor, n_tokens: int) -> Step:
    """BERT or ModernBERT with the usual step: labels of -100, AdamW, gradient clipping; bfloat16 on CUDA.

    Neither has dropout, as in benchmarks/recipes/peers.yaml.
    """
    model = masked_lm(architecture, shape, n_tokens).to(ids.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=ids.device.type in ("cpu", "cuda"))  # its default
    windows = Windows(ids, seed=0)
    generator = torch.Generator(device=ids.device).manual_seed(0)

    def step() -> torch.Tensor:
        tokens = windows.draw(shape.batch_size, shape.seq_len).tokens
        inputs, labels = collated(tokens, n_tokens, generator)
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
            loss = model(input_ids=inputs, labels=labels).loss
        return update(model, optimizer, loss)

    return step


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    """The end of both steps: gradients are clipped to a norm of 1. Returns the loss."""
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def masked_lm(architecture: str, shape: Shape | ModelConfigs, n_tokens: int, dropout: float = 0.0) -> nn.Module:
    """`BertForMaskedLM` or `ModernBertForMaskedLM` of a shape, untrained, for `bert` or `modernbert`.

    All else is the default of its authors: in ModernBERT, two of three layers attend to 64 characters on either side.
    """
    # transformers imports torchvision if it is installed; the one that labml_nn installs needs torch's CUDA build.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    from transformers import AutoConfig, AutoModelForMaskedLM

    config = AutoConfig.for_model(
        architecture,
        vocab_size=n_tokens,
        hidden_size=shape.d_model,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        intermediate_size=shape.d_ff,
        pad_token_id=n_tokens - 2,
        sparse_prediction=True,  # ModernBERT computes its head at the masked positions only
        **dict.fromkeys(UNUSED_TOKENS),
        **dict.fromkeys(DROPOUTS, dropout),
    )
    return AutoModelForMaskedLM.from_config(config)


def collated(tokens: torch.Tensor, n_tokens: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels as Hugging Face's DataCollatorForLanguageModeling draws them, for tokens `[batch, seq_len]`."""
    draws, kinds = torch.rand((2, *tokens.shape), generator=generator, device=tokens.device)
    selected = draws < MASKING_PROB
    random = torch.randint(n_tokens, tokens.shape, generator=generator, device=tokens.device)
    inputs = torch.where(selected & (kinds < 0.8), n_tokens - 1, tokens)
    inputs = torch.where(selected & (kinds >= 0.9), random, inputs)
    return inputs, torch.where(selected, tokens, -100)
