import importlib
import sys
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from labml_nn.helpers.metrics import Accuracy
from labml_nn.optimizers.noam import Noam
from labml_nn.transformers import TransformerConfigs
from labml_nn.transformers.mlm import MLM
from torch import nn

import model.labml_transformer  # noqa: F401, repairs labml_nn's attention for current labml releases
from benchmarks import peers
from benchmarks.peers import Shape, collated, masked_lm
from benchmarks.throughput import folio
from data.shuffled import ShuffledWindows

SHAPE = Shape(d_model=32, n_layers=2, n_heads=4, d_ff=48, seq_len=16, batch_size=8)
N_TOKENS = 30
IDS = torch.randint(N_TOKENS - 2, (2_000,), generator=torch.Generator().manual_seed(0))


def test_hugging_faces_masks_are_80_10_10():
    tokens = torch.zeros(200, 500, dtype=torch.int64)
    inputs, labels = collated(tokens, N_TOKENS, torch.Generator().manual_seed(0))
    selected = labels == 0
    assert (labels[~selected] == -100).all()
    assert selected.double().mean() == pytest.approx(0.15, abs=0.005)
    assert (inputs[selected] == N_TOKENS - 1).double().mean() == pytest.approx(0.8 + 0.1 / N_TOKENS, abs=0.01)
    assert (inputs[selected] == 0).double().mean() == pytest.approx(0.1 + 0.1 / N_TOKENS, abs=0.01)
    assert (inputs[~selected] == 0).all()


@pytest.mark.parametrize("name", ["annotated", "bert", "modernbert", "folio"])
def test_every_step_learns(name, shakespeare):
    torch.manual_seed(0)
    if name == "folio":
        step = folio(SHAPE, **{"training.compile": False, "device": "cpu", "training.warmup": 0.0})
    else:
        step_of = peers.annotated if name == "annotated" else partial(peers.hugging_face, name)
        step = step_of(SHAPE, IDS % 3, N_TOKENS)  # three characters are soon learned
    first = step()
    for _ in range(60):
        last = step()
    assert last < 0.95 * first


@pytest.mark.parametrize(
    ("architecture", "model"), [("bert", "BertForMaskedLM"), ("modernbert", "ModernBertForMaskedLM")]
)
def test_a_peer_has_the_shape_that_is_asked_for(architecture, model):
    peer = masked_lm(architecture, SHAPE, N_TOKENS, dropout=0.25)
    assert type(peer).__name__ == model
    config = peer.config
    assert (config.hidden_size, config.num_hidden_layers) == (SHAPE.d_model, SHAPE.n_layers)
    assert (config.num_attention_heads, config.intermediate_size) == (SHAPE.n_heads, SHAPE.d_ff)
    assert config._attn_implementation == "sdpa"
    assert {module.p for module in peer.modules() if isinstance(module, nn.Dropout)} == {0.25}


@pytest.fixture
def annotated(monkeypatch):
    """labml_nn's own module. It imports torchvision for other experiments, which needs torch's CUDA build."""
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(datasets=Mock(), transforms=Mock()))
    return importlib.import_module("labml_nn.transformers.mlm.experiment")


def test_the_annotated_step_is_its_authors_own(annotated):
    torch.manual_seed(0)
    step = peers.annotated(SHAPE, IDS, N_TOKENS)
    torch.manual_seed(1)
    losses = [step().item() for _ in range(3)]

    torch.manual_seed(0)
    labmls = LabmlExperiment(annotated)
    torch.manual_seed(1)
    assert [labmls.step() for _ in range(3)] == losses


class LabmlExperiment:
    """labml_nn's own `Configs.step` with the objects that its config tree would make; that tree no longer starts."""

    def __init__(self, annotated):
        self.its_step = annotated.Configs.step
        transformer = TransformerConfigs()
        transformer.n_src_vocab = transformer.n_tgt_vocab = N_TOKENS
        transformer.d_model, transformer.n_heads = SHAPE.d_model, SHAPE.n_heads
        transformer.n_layers, transformer.ffn.d_ff = SHAPE.n_layers, SHAPE.d_ff
        encoder, src_embed, generator = transformer.encoder, transformer.src_embed, transformer.generator
        self.model = annotated.TransformerMLM(encoder=encoder, src_embed=src_embed, generator=generator)
        rates = {"lr": 1.0, "betas": (0.9, 0.999), "eps": 1e-8, "warmup": 2_000}
        self.optimizer = Noam(self.model.parameters(), d_model=SHAPE.d_model, **rates)
        shares = {"masking_prob": 0.15, "randomize_prob": 0.1, "no_change_prob": 0.1}
        special = {"padding_token": N_TOKENS - 2, "mask_token": N_TOKENS - 1, "no_mask_tokens": []}
        self.mlm = MLM(n_tokens=N_TOKENS, **special, **shares)
        self.accuracy = Accuracy(ignore_index=N_TOKENS - 2)
        self.accuracy.set_state(self.accuracy.create_state())
        self.loss = nn.CrossEntropyLoss(ignore_index=N_TOKENS - 2)
        self.device, self.grad_norm_clip, self.mode = torch.device("cpu"), 1.0, SimpleNamespace(is_train=True)
        self.windows = ShuffledWindows(IDS, seed=0)

    def loss_func(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.last = self.loss(output, labels)
        return self.last

    def step(self) -> float:
        batch = self.windows.draw(SHAPE.batch_size, SHAPE.seq_len).tokens.t().contiguous()
        self.its_step(self, (batch,), SimpleNamespace(is_last=False))
        return self.last.item()
