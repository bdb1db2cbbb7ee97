"""Turns an export for transformers into a folder for sentence-transformers: the encoder without its
head, and how texts become vectors."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from configs.hugging_face import ARCHITECTURE, Checkpoint
from configs.keys import ConfigError
from runs.files import write_atomically, write_json
from trained.load import Trained
from trained.model_card import SENTENCE_TRANSFORMERS, card
from trained.vectors import CLS

POOLING = "1_Pooling"
MODULES = (("", "Transformer"), (POOLING, "Pooling"))


def convert(
    trained: Trained, folder: Path, pooling: str | None, layer: int | None
) -> None:
    """Change a folder of `export.py --to huggingface`. `SentenceTransformer(folder).encode` gives
    the vectors of `predict.py --vectors` for texts of at most `longest` tokens, and cuts longer
    ones. Raises ConfigError if the folder has no tokenizer."""
    if not (folder / "tokenizer.json").exists():
        raise ConfigError(
            "sentence-transformers needs a tokenizer.json, and a tokenizer of your own has none"
        )
    adds_tokens = trained.values["model.architecture"] == ARCHITECTURE
    # the other architectures have Folio's code
    trusts = trained.values["model.trust_remote_code"] or not adds_tokens
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # of BERT's pooler, which no vector depends on
        model = Checkpoint(folder, trusts).load("AutoModel", dtype=torch.float32)
    if layer is not None:
        cut_after(model, layer)
    model.save_pretrained(folder)

    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": path,
            "type": f"sentence_transformers.models.{name}",
        }
        for i, (path, name) in enumerate(MODULES)
    ]
    write_json(folder / "modules.json", modules)
    longest = trained.longest + 2 * adds_tokens
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest})
    modes = {
        "word_embedding_dimension": model.config.hidden_size,
        "pooling_mode_cls_token": pooling == CLS,
        "pooling_mode_mean_tokens": pooling != CLS,
    }
    write_json(folder / POOLING / "config.json", modes)
    text = card(trained, SENTENCE_TRANSFORMERS)
    write_atomically(folder / "README.md", text.encode())


def cut_after(model: Any, layer: int) -> None:
    """Make a model of transformers end after a layer."""
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList)]
    del max(lists, key=len)[layer:]
    config = model.config
    config.num_hidden_layers = layer
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layer]
