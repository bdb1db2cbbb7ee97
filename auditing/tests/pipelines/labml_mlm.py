"""labml_nn's MLM, which is sequence-first, and PyTorch's transformer after a convolution over five
neighbors.

labml_nn's masks draw special tokens as replacements, which the model may learn to live with.
"""

import torch
from labml_nn.transformers.mlm import MLM
from torch import nn
from torch.nn.functional import cross_entropy

BATCH = 32
SEQ_LEN = 64
D_MODEL = 64


class Transformer(nn.Module):
    def __init__(self, n_tokens):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, D_MODEL)
        self.neighbors = nn.Conv1d(D_MODEL, D_MODEL, 5, padding=2)
        self.positions = nn.Parameter(torch.zeros(SEQ_LEN, 1, D_MODEL))
        layer = nn.TransformerEncoderLayer(
            D_MODEL, 4, 128, 0.0, "gelu", norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.generator = nn.Linear(D_MODEL, n_tokens)

    def forward(self, x):
        """Logits `[seq_len, batch, n_tokens]` for ids `[seq_len, batch]`."""
        embedded = self.embedding(x)
        near = self.neighbors(embedded.permute(1, 2, 0)).permute(2, 0, 1)
        return self.generator(self.layers(near + embedded + self.positions[: len(x)]))


def make_model(tokens):
    model = Transformer(tokens.n_tokens)
    return model, torch.optim.Adam(model.parameters(), lr=2e-3)


def make_batches(ids, tokens, seed, training):
    mlm = MLM(
        padding_token=tokens.padding,
        mask_token=tokens.mask,
        no_mask_tokens=[],
        n_tokens=tokens.n_tokens,
    )
    generator = torch.Generator().manual_seed(seed)

    for _ in range(10**9 if training else 8):
        starts = torch.randint(len(ids) - SEQ_LEN, (BATCH,), generator=generator)
        x, y = mlm(ids[starts + torch.arange(SEQ_LEN)[:, None]])  # [seq_len, batch]
        yield x.t(), y.t(), tokens.padding


def loss_and_logits(model, batch):
    x, y, padding = batch
    logits = model(x.t()).transpose(0, 1)
    return cross_entropy(
        logits.flatten(0, 1), y.flatten(), ignore_index=padding
    ), logits
